"""``python -m tests.training.reinforcement.kills N``: N random kills of each role, one a run.

A role of which there is another rank can be spared: the run goes on, every update is made, and the
end is recorded. Of one that cannot, the run's error names the rank. Either way each transition and
each gradient is conserved, and nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import polars as pl

import workbench as wb
from tests.live import gone, until
from tests.training.reinforcement.played import TRANSITION, counts, game, metric, roles, sent
from workbench.laws import check_events
from workbench.training.parameter_servers.laws import every_push_counts_once

ITERATIONS = 200
LONGEST = 0.1  # seconds after the iteration that was waited for


@dataclass(frozen=True)
class Case:
    """The rank to kill, and in which run. ``spared``: the run goes on without it."""

    role: str  # as the run's facts name it
    strategy: str
    ranks: int
    options: dict[str, Any]
    spared: bool = True


CASES = {
    "an actor": Case("actors", "ape_x", 5, {}),
    "an actor of Gorila": Case("actors", "gorila", 6, {"servers": 2}),
    "one of two replays": Case("replays", "ape_x", 5, {"replays": 2}),
    "one of two learners": Case("learners", "gorila", 6, {"learners": 2}),
    "the only learner": Case("learners", "ape_x", 4, {}, spared=False),
    "the only replay": Case("replays", "ape_x", 4, {}, spared=False),
    "a server": Case("servers", "gorila", 6, {"servers": 2}, spared=False),
    "a bundle": Case("learners", "gorila", 4, {"bundle": True}),
    "the bundles' server": Case("servers", "gorila", 3, {"bundle": True}, spared=False),
}


def strike(name: str, number: int) -> str:
    """Kill a rank of a role at a moment that ``number`` decides. Returns what came of it; raises
    AssertionError where that is wrong.
    """
    case, chance = CASES[name], random.Random(f"{name}/{number}")
    fields: dict[str, Any] = {
        "pull_every": 8,
        "pad_environment": "1 ms",
        "seed": number,
        "record_transitions": True,
    }
    run = wb.run(game(case.strategy, case.ranks, iterations=ITERATIONS, **fields, **case.options))
    try:
        at = chance.randrange(0, ITERATIONS * 3 // 4)
        until(lambda: run.done or run.iteration >= at, what=f"iteration {at}")
        time.sleep(chance.uniform(0, LONGEST))
        victim = chance.choice(roles(run)[case.role])
        if run.done:
            return "was over"
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pids[victim], signal.SIGKILL)
        result = run.wait(timeout=120, check=False)
        judge(run, result, case, victim, early=at == 0)
        return "went on" if result.lost else "was over" if result.ok else "was named"
    finally:
        if not run.done:
            run.stop()
            run.wait(timeout=120, check=False)
        until(lambda: gone(run.pids.values()), 10, "the ranks have ended")


def judge(run: wb.Run, result: wb.Result, case: Case, victim: int, *, early: bool) -> None:
    """Raise AssertionError if the run did not end as it should without this rank.

    ``early``: it was killed in the first iteration, where it may have been needed to begin.
    """
    whole = result.ok and not result.lost
    assert run.dropped == 0 and check_events(run.events, complete=whole) == []
    assert every_push_counts_once(run.events, complete=whole) == []
    if not result.ok:
        begun = metric(run.events, "frames").height > 0  # before that a run can spare no rank
        assert begun or early, "no frame was recorded before an iteration that actors play for"
        spared = case.spared and begun
        assert not spared, f"rank {victim} could have been spared: {result.error}"
        assert isinstance(result.error, wb.PeerLost), result.error
        assert result.error.rank == victim, result.error
        return
    assert set(result.lost) <= {victim}
    assert len(result.losses) == ITERATIONS
    if result.lost:
        noticed = run.events.filter(kind="detect", name="lost")["peer"]
        assert victim in noticed.to_list()
    kept, places = counts(run), roles(run)
    if case.options.get("bundle"):
        return
    assert {*kept} == {*places["replays"]} - {*result.lost}
    for rank, one in kept.items():
        assert sum(one["came"].values()) == one["inserted"] + sum(one["dropped"].values())
        for actor in {*places["actors"]} - {*result.lost}:
            out = sent(run.events, "experience", [actor]).filter(pl.col("peer") == rank)
            assert out["nbytes"].sum() == one["came"][str(actor)] * TRANSITION, (actor, rank)


def main(many: int, names: list[str]) -> int:
    """Kill ``many`` ranks of each of these cases; all cases where none is named."""
    wrong = 0
    for name in names or CASES:
        outcomes: dict[str, int] = {}
        for number in range(many):
            try:
                how = strike(name, number)
            except Exception as error:
                how, wrong = f"WRONG ({number}): {error!s:.200}", wrong + 1
            outcomes[how] = outcomes.get(how, 0) + 1
        print(f"{name:20} {outcomes}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
