"""Record real runs for tests of the page, all or those that are named, into tests/js/recorded/:
``python -m tests.js.record [NAME ...]``.

Each file is one run, as a page would hear it: its facts, its rows as they are packed for the wire.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import workbench as wb
from tests.live import lenet
from workbench.recording.events import KINDS
from workbench.store.table import Names, from_frame
from workbench.views.packing import pack
from workbench.views.pages.facts import facts

FOLDER = Path(__file__).parent / "recorded"
KILL = wb.Kill(rank=1, at_iteration=3)


def served(**more: Any) -> wb.Experiment:
    own = {name: more.pop(name) for name in ("servers", "replicas") if name in more}
    options = {"servers": 2, **own}
    return lenet(
        strategy="parameter_server",
        **{"ranks": options["servers"] + 2, "options": options, "iterations": 6, **more},
    )


def played(strategy: str, ranks: int, iterations: int, **more: Any) -> wb.Experiment:
    options = {"learn_from": 48, "capacity": 96, **more.pop("options", {})}
    own = {"batch_size": 8, "threads": 1, "optimizer": "adam", "pad_environment": "1 ms"}
    return wb.Experiment(
        strategy=strategy,
        task="catch",
        task_options={"rows": 5, "columns": 4, "channels": 2, "hidden": 8},
        ranks=ranks,
        iterations=iterations,
        options=options,
        **{**own, **more},
    )


RUNS: dict[str, wb.Experiment] = {
    "other_clock": wb.Experiment(
        task="mlp_layers",
        ranks=2,
        iterations=3,
        batch_size=12,
        threads=1,
        launcher=f"{Path(__file__).parents[1]}/launchers/other_clock.py:Launcher",
    ),
    "server_shrinks": served(replicas=2, recovery="shrink", faults=KILL),
    "server_replaced": served(recovery="replace", faults=KILL),
    "worker_replaced": served(recovery="replace", faults=wb.Kill(rank=3, at_iteration=3)),
    "peer_replaced": lenet(
        strategy="gossip", ranks=3, iterations=6, recovery="replace", faults=KILL
    ),
    "peer_lost": lenet(strategy="gossip", ranks=3, iterations=6, recovery="shrink", faults=KILL),
    "shard_replaced": lenet(
        strategy="fsdp", ranks=2, iterations=5, recovery="replace", faults=KILL
    ),
    "stage_replaced": lenet(
        strategy="pipeline",
        ranks=2,
        iterations=5,
        options={"microbatches": 2},
        recovery="replace",
        faults=KILL,
    ),
    "poisoned": lenet(
        strategy="data_parallel",
        ranks=3,
        iterations=3,
        all_reduce="ring",
        faults=wb.Corrupt(rank=1, at_iteration=1),
    ),
    "played_ape_x": played(
        "ape_x", 4, 40, options={"pull_every": 8}, faults=wb.Kill(rank=3, at_iteration=20)
    ),
    "played_gorila": played(
        "gorila",
        14,
        10,
        options={"servers": 2, "learners": 3, "replays": 2, "replay": "prioritised"},
    ),
    "played_bundles": played("gorila", 3, 12, options={"bundle": True}),
}


def recorded(exp: wb.Experiment) -> dict[str, Any]:
    run = wb.run(exp)
    run.wait(timeout=90)
    events = run.events
    names, origin = Names(), int(events["start_ns"].min())  # type: ignore[arg-type]
    header, block = pack(from_frame(events, names.number), origin)
    header |= {"kinds": list(KINDS), "strings": {"first": 0, "texts": names.since(0)}}
    return {
        "run": facts(run.store.metadata),
        "header": header,
        "bytes": base64.b64encode(block).decode(),
    }


def main() -> None:
    """Record all of them, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or RUNS:
        exp = RUNS[name]
        text = json.dumps(recorded(exp), separators=(",", ":"))
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(name, (FOLDER / f"{name}.json.gz").stat().st_size)


if __name__ == "__main__":
    main()
