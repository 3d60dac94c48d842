"""``python -m tools.soak.aimed 500 [--seed S] [--only NUMBER] [--kind KIND]``: aimed kills.

Ranks are killed where a run is thinnest: while groups form, in the last iteration, during a regroup
(a second kill), and at the start; over strategies and recovery policies. Most ranks strike
themselves at a point of the code (aimed_task.py), so that no case needs luck; some are struck by
the clock. Each run must recover, or end by an error that names a struck rank, with all losses; and
within a second of an idle machine of the moment when the end was noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import workbench as wb
from tests.live import crowding
from tools.soak.jobs import JOBS, experiment
from workbench.studies.uninterrupted import differs_from_uninterrupted
from workbench.user_code import source

TASK = Path(__file__).with_name("aimed_task.py")
ITERATIONS = 4
SOON = 1.0  # seconds of an idle machine, from the notice of an end
HANGS = 15.0  # the same, after which a run is taken to hang
RECORDED_MS = 50.0  # more than the driver takes to notice an end
GROUP_POINTS = ("meet", "met", "connect", "published", "connected")
END_POINTS = ("finish", "finished", "report", "report last")
LEAVE_POINTS = ("leave", "left", "exchange")
KINDS = {"forming": 3, "last": 3, "regroup": 3, "start": 1}
CLASSES = ("recovered", "named", "late", "losses incomplete", "wrong", "raw error", "hung")
PLAYED = {"task": "gymnasium_game", "task_options": {"hidden": [8]}}
GORILA = ((5, 6), PLAYED, ({"learn_from": 20, "outlier_above": 0.0}, {"servers": 2}))
STRATEGIES = {**JOBS, "gorila": GORILA}


@dataclass(frozen=True)
class Strike:
    """One kill. ``point``: of aimed_task.py; or "clock <iteration> <seconds>", from outside.
    ``by``: the rank that comes to the point; left out: the victim itself.
    """

    rank: int
    point: str
    generation: int = 0
    by: int | None = None

    def __str__(self) -> str:
        by = "" if self.by is None else f" of rank {self.by}"
        return f"rank {self.rank} at {self.point!r}{by}, generation {self.generation}"

    def as_fields(self) -> dict[str, Any]:
        return {**vars(self), "by": self.rank if self.by is None else self.by}


@dataclass
class Case:
    """One run, and what came of it: ``outcome`` is one of CLASSES, or "missed" where no rank came
    to the point.
    """

    number: int
    kind: str
    experiment: wb.Experiment
    strikes: tuple[Strike, ...]
    outcome: str = ""
    words: str = ""
    soon: float = math.nan  # seconds from the notice to the group that goes on, or to the end
    crowded: float = 1.0

    def __str__(self) -> str:
        exp = self.experiment
        return (
            f"{self.number:4} {self.kind:8} {exp.strategy:17} ×{exp.ranks} {exp.recovery:8} "
            f"{dict(exp.options) or ''} {'; '.join(map(str, self.strikes))}: {self.outcome} "
            f"({self.soon:.2f} s, {self.crowded:.1f} tasks a core) {self.words}"
        )


def drawn(seed: int, number: int, folder: Path, kinds: tuple[str, ...] = ()) -> Case:
    """Return a case, which follows from seed and number."""
    chance = random.Random(f"aimed {seed}/{number}")
    chosen = kinds or tuple(KINDS)
    kind = chance.choices(chosen, [KINDS[one] for one in chosen])[0]
    policies = [one for one in source.available("recovery") if one != "abort"]
    while True:
        strategy, policy = chance.choice([*STRATEGIES]), chance.choice(policies)
        strikes = _strikes(chance, kind)
        fields: dict[str, Any] = {"recovery": policy}
        if policy == "restart" or chance.random() < 0.2:
            fields["checkpoint"] = wb.Checkpoint(folder=str(folder / "checkpoints"), every=1)
        with contextlib.suppress(wb.SpecError):
            exp = _experiment(chance, strategy, fields)
            victims = chance.sample(range(exp.ranks), min(exp.ranks, 2))
            if len(victims) < len(strikes):
                continue
            strikes = tuple(
                Strike(rank, point, generation)
                for rank, (point, generation) in zip(victims, strikes, strict=False)
            )
            return Case(number, kind, aimed(exp, strikes, folder), strikes)


def _experiment(chance: random.Random, strategy: str, fields: dict[str, Any]) -> wb.Experiment:
    ranks, own, options = STRATEGIES[strategy]
    base = {
        "iterations": ITERATIONS,
        "dtype": "float64",
        "timeout": "300 s",  # nothing may need it
        "record": True,
        "network": wb.Network(),
        "seed": 1,
        "optimizer": "sgd",  # and what else is the same for all: fewer references to run
        "chunk_bytes": 65_536,
        "all_reduce": "auto",
    }
    if strategy == "gorila":
        base |= {"strategy": strategy, "ranks": chance.choice(ranks), "batch_size": 8}
        return wb.Experiment(**{**base, **own, **fields, "options": chance.choice(options)})
    return experiment(chance, **{**base, "strategy": strategy, **fields})


def _strikes(chance: random.Random, kind: str) -> tuple[tuple[str, int], ...]:
    """Draw points and generations; the first of two has the others regroup."""
    group, end = chance.choice(GROUP_POINTS), chance.choice(END_POINTS)
    if kind == "forming":
        return ((f"{group} {chance.choice([1, 1, 1, 2])}", 0),)
    if kind == "last":
        clock = f"clock {ITERATIONS - 1} {chance.uniform(0, 0.06):.4f}"
        return ((chance.choice([end, clock]), 0),)
    if kind == "start":
        return ((f"clock -1 {chance.choice([0.0, chance.uniform(0, 0.3)]):.4f}", 0),)
    first = chance.choice([f"clock 1 {chance.uniform(0, 0.03):.4f}", "finish", "meet 1"])
    second = chance.choice(
        [(f"{group} *", 1), (chance.choice(LEAVE_POINTS[:2]), 0), ("exchange", 1)]
    )
    return ((first, 0), second)


def aimed(exp: wb.Experiment, strikes: tuple[Strike, ...], folder: Path) -> wb.Experiment:
    """Return the experiment with a task that has these strikes in its ranks."""
    name = "Game" if exp.task == "gymnasium_game" else "Task"
    own = json.dumps([one.as_fields() for one in strikes])
    options = {"base": exp.task, "strikes": own, "folder": str(folder), "options": exp.task_options}
    return exp.replace(task=f"{TASK}:{name}", task_options=options)


def done(case: Case, folder: Path) -> Case:
    """Do a case, and judge it."""
    run = wb.run(case.experiment)
    pids = set[int]()
    try:
        for number, one in enumerate(case.strikes):
            if one.point.startswith("clock"):
                _strike_by_clock(run, one, folder / f"struck-{number}")
        quiet_from, seen = time.monotonic(), ()
        while not run.done:
            pids |= {*run.pids.values()}
            now = (run.iteration, len(run.store.metadata.get("recoveries", "")), _struck(folder))
            if now != seen:
                quiet_from, seen = time.monotonic(), now
            if time.monotonic() - quiet_from > HANGS * crowding():
                case.outcome, case.words = "hung", _stacks(run)
                break
            time.sleep(0.005)
        case.crowded = crowding()
        if not case.outcome:
            _judge(case, run, folder)
    finally:
        for rank in run.pids:
            run.kill(rank) if not run.done else None
        run.wait(timeout=90, check=False, progress=False)
    return case


def _struck(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in folder.glob("struck-*")))


def _strike_by_clock(run: wb.Run, one: Strike, mark: Path) -> None:
    _, iteration, seconds = one.point.split()
    while not run.done and run.iteration < int(iteration):
        time.sleep(0.0005)
    time.sleep(float(seconds))
    if not run.done and one.rank not in run._supervisor.reports:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pids[one.rank], signal.SIGKILL)
            mark.touch()


def _judge(case: Case, run: wb.Run, folder: Path) -> None:
    """Say what came of the case."""
    exp, result, error = case.experiment, run.result, run.result.error
    struck = {case.strikes[int(one.rpartition("-")[2])].rank for one in _struck(folder)}
    lines = str(error).strip().splitlines() if error is not None else [""]
    case.words = lines[0] if len(lines) == 1 or "raised" not in lines[0] else " | ".join(lines[-4:])
    case.soon = _soon(run)
    some_finished = error is not None and bool(result.digests)
    if not struck:
        case.outcome = "missed" if error is None else "raw error"
    elif isinstance(error, wb.RunTimeout):
        case.outcome = "hung"
    elif error is not None and not isinstance(error, wb.PeerLost | wb.TooFewRanks):
        case.outcome = "raw error"
    elif error is not None and getattr(error, "rank", -1) not in struck:
        case.outcome, case.words = "wrong", f"{struck} were struck: {case.words}"
    elif (error is None or some_finished) and not _complete(result, exp):
        case.outcome = "losses incomplete"
        case.words += f"{len(result.losses)} of {exp.iterations} losses"
    elif error is None and (differs := _differs(exp, run)):
        case.outcome, case.words = "wrong", differs
    elif not result.parameters and error is None:
        case.outcome, case.words = "wrong", "no parameters"
    elif case.soon > SOON * max(case.crowded, crowding()):
        case.outcome = "late"
    else:
        case.outcome = "recovered" if error is None else "named"


def _complete(result: wb.Result, exp: wb.Experiment) -> bool:
    return len(result.losses) == exp.iterations and all(map(math.isfinite, result.losses))


def _differs(exp: wb.Experiment, run: wb.Run) -> str:
    """Return how the losses are not those of one process that trains the task itself."""
    options = exp.task_options
    if exp.strategy == "gorila":
        return ""
    plain = exp.replace(task=options["base"], task_options=options["options"], timeout="30 s")
    return differs_from_uninterrupted(plain, run, run.result)


def _soon(run: wb.Run) -> float:
    """Return the longest time from a notice to the group that goes on, or to the end of the run."""
    rows = run.events
    noticed = rows.filter((pl.col("kind").cast(pl.String) == "detect") & (pl.col("rank") < 0))
    rebuilt = rows.filter(pl.col("kind").cast(pl.String) == "rebuild")["end_ns"].to_list()
    over = rows["end_ns"].max()
    longest = 0.0
    for notice in noticed["start_ns"].to_list():
        after = min((end for end in rebuilt if end > notice), default=over)
        longest = max(longest, (after - notice) / 1e9)
    return longest


def _stacks(run: wb.Run) -> str:
    """Return where the ranks that live are, if py-spy is installed."""
    spy = Path(sys.executable).with_name("py-spy")
    lines = [f"in iteration {run.iteration}, reports of {[*run._supervisor.reports]}"]
    for rank, pid in run.pids.items() if spy.exists() else ():
        command = [spy, "dump", "--pid", str(pid)]
        lines += [f"rank {rank}", subprocess.run(command, capture_output=True, text=True).stdout]
    return "\n".join(lines)


@dataclass
class Aimed:
    """``seed`` and a case's number say what it does."""

    seed: int
    kinds: tuple[str, ...] = ()
    done: list[Case] = field(default_factory=list)

    def cases(self, count: int, first: int = 0) -> Iterator[Case]:
        for number in range(first, first + count):
            with tempfile.TemporaryDirectory(prefix="aimed-") as name:
                folder = Path(name)
                case = done(drawn(self.seed, number, folder, self.kinds), folder)
            self.done.append(case)
            yield case

    def summary(self) -> dict[str, dict[str, int]]:
        """Return the cases by kind and outcome."""
        return {
            kind: dict(Counter(one.outcome for one in self.done if kind in (one.kind, "all")))
            for kind in (*KINDS, "all")
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.soak.aimed", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="the case of this number alone")
    parser.add_argument("--kind", action="append", choices=[*KINDS], default=[])
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after that")
    options = parser.parse_args()
    sweep = Aimed(options.seed, tuple(options.kind))
    first, count = (options.only, 1) if options.only is not None else (options.first, options.count)
    began = time.monotonic()
    print(f"python -m tools.soak.aimed {count} --first {first} --seed {options.seed}")
    for case in sweep.cases(count, first):
        print(case, flush=True)
        if time.monotonic() - began > options.minutes * 60:
            break
    print(*(f"{kind}: {counts}" for kind, counts in sweep.summary().items()), sep="\n")
    wb.shutdown()
    return int(any(one.outcome not in ("recovered", "named", "missed") for one in sweep.done))


if __name__ == "__main__":
    sys.exit(main())
