"""``python -m tests.exercises.record_ways``: the runs by which exercise 15.3 judges a rule.

Ten incidents strike the same job, and each choice is a configuration of it. The goodput is the time
of the iterations without an incident, over the time for which the machines were reserved. A
choice that ends the run with an error has 0. To stop is the same whatever the incident: the job
ends, gives its machines back, and is resumed from its checkpoint on others ``RESTART_S`` later.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import workbench as wb
from workbench.exercises.ways import FILE, RESTART_S

AT, ALL, LIMIT = 5, 20, "15 s"
NOTICED_S = 0.5
JOB = wb.Experiment(
    ranks=3, iterations=ALL, batch_size=48, pad_compute="200 ms", threads=1, stop_after=LIMIT
)
SLOW = wb.Link(latency="600 ms")
CHOICES: dict[str, dict[str, Any]] = {
    "skip": {"bad_minibatch": "skip", "data_patience": "0.1 s"},
    "wait": {"bad_minibatch": "fail"},
    "abandon": {
        "bad_minibatch": "fail",
        "data_patience": "0.1 s",
        "recovery": "quorum",
        "quorum_timeout": "0.5 s",
    },
}


def slow(*ranks: int) -> dict[str, Any]:
    """Return slow links from these ranks."""
    links = {(a, b): SLOW for a in ranks for b in range(3) if a != b}
    return {"network": wb.Network(links=links)}


def down(seconds: float) -> dict[str, Any]:
    return {"faults": wb.SourceDown(at_iteration=AT, seconds=seconds, slow_iterations=0)}


INCIDENTS: list[tuple[str, str, float, int, dict[str, Any]]] = [
    ("one corrupt sample", "sample", math.inf, 1, {"faults": wb.Corrupt(rank=1, at_iteration=AT)}),
    (
        "five corrupt samples",
        "sample",
        math.inf,
        1,
        {"faults": [wb.Corrupt(rank=1, at_iteration=at) for at in range(AT, AT + 10, 2)]},
    ),
    ("the data set is away for 0.5 s", "source", 0.5, 3, down(0.5)),
    ("the data set is away for 2 s", "source", 2, 3, down(2)),
    ("the data set is away for 12 s", "source", 12, 3, down(12)),
    ("one rank behind slow links", "links", math.inf, 1, slow(1)),
    ("two ranks behind slow links", "links", math.inf, 2, slow(1, 2)),
    (
        "a rank stands still for 0.3 s",
        "rank",
        0.3,
        1,
        {"faults": wb.Freeze(rank=1, at_iteration=AT, seconds=0.3)},
    ),
    (
        "a rank stands still for 13 s",
        "rank",
        13,
        1,
        {"faults": wb.Freeze(rank=1, at_iteration=AT, seconds=13)},
    ),
    ("a rank is killed", "rank", math.inf, 1, {"faults": wb.Kill(rank=1, at_iteration=AT)}),
]


def trained(exp: wb.Experiment) -> tuple[float, int, float]:
    """Return for how long a run trains, its iterations that count (none after an error), and how
    long an iteration of it lasts: the median, as the machine may be busy.
    """
    run = wb.run(exp)
    result = run.wait(timeout=300, check=False)
    each = run.iterations()["took_ms"].median() if result.ok else 0.0
    useful = sum(map(math.isfinite, result.losses)) if result.ok else 0
    return result.wall_seconds, useful, float(each or 0.0) / 1000


def main() -> None:
    _, _, alone = trained(JOB)
    with tempfile.TemporaryDirectory() as folder:
        plan = wb.Checkpoint(folder=folder, every=AT)
        before, _, first = trained(JOB.replace(iterations=AT, checkpoint=plan))
        after, _, then = trained(JOB.replace(resume=folder))
    stopped = ALL * min(alone, first, then) / (before + NOTICED_S + RESTART_S + after)
    rows = []
    for name, what, expected, struck, fields in INCIDENTS:
        goodput = {"stop": round(stopped, 3)}
        for choice, own in CHOICES.items():
            seconds, done, each = trained(JOB.replace(**{**fields, **own}))
            goodput[choice] = round(done * min(alone, each) / seconds, 3) if done else 0.0
            print(name, choice, done, round(seconds, 2), goodput[choice], flush=True)
        expected_s = None if math.isinf(expected) else expected
        rows.append(
            {"name": name, "what": what, "seconds": expected_s, "struck": struck, **goodput}
        )
    Path(FILE).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
