"""``python -m tools.soak --kills N``: ranks that are killed and frozen at random moments.

Of every strategy, from the first moments of a run to its exit. Each run must end with an error that
names a rank that was in fact struck, or go on where its strategy can do without it; nothing may be
left. Told are the seconds from the strike to the run's end: a table, and all cases as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import workbench as wb
from tests.conftest import remains
from tests.live import LONG, gone, training
from tools.soak import young
from tools.soak.held import Held, held, settled
from tools.soak.jobs import JOBS, experiment

TIMEOUT = 1.0  # seconds without progress after which a run with a frozen rank must say so
LATE = 25.0  # seconds, and more than that is not the machine's load: the run is stuck
WENT_ON = 3.0  # seconds after which a run that may do without a rank is taken to do so
MOST_SPARE = 64
# How often each way of striking comes.
HOWS = {
    "kill": 40,
    "kill two": 10,
    "freeze": 25,
    "freeze, kill it": 10,
    "freeze one, kill another": 10,
    "kill a young driver": 5,
}
WHENS = {"start": 3, "training": 3, "exit": 2}
# Strategies that go on without a worker that has died; and those in which no rank need wait for one
# that has stopped.
SPARE_DEAD = ("parameter_server",)
SPARE_FROZEN = ("parameter_server", "ad_psgd", "malt", "sequential", "data_servers")


@dataclass
class Struck:
    """One case, and what came of it. ``outcome``: "named", "went on", "was over", or what was wrong
    if ``wrong``.
    """

    number: int
    strategy: str
    ranks: int
    how: str
    when: str
    victims: list[int]
    outcome: str = ""
    wrong: str = ""
    seconds: float = float("nan")  # from the strike to the run's end
    load: float = 0.0
    words: str = ""  # the error's first line


@dataclass
class Kills:
    """``seed`` and a case's number say what it does."""

    seed: int
    done: list[Struck] = field(default_factory=list)
    _before: Held | None = None

    def cases(self, count: int, first: int = 0) -> Iterator[Struck]:
        if self._before is None:
            # What is opened once, on first use, is not a leak: one that ends well, one that does
            # not.
            wb.run(experiment(random.Random(0), iterations=2)).wait(timeout=120)
            failed = training(wb.run(experiment(random.Random(0), strategy="ddp")), 1)
            failed.kill(0)
            failed.wait(timeout=60, check=False)
            del failed
            self._before = held()
        for number in range(first, first + count):
            yield self._case(number)

    def _case(self, number: int) -> Struck:
        chance = random.Random(f"kills {self.seed}/{number}")
        how = _drawn(chance, HOWS)
        load = os.getloadavg()[0]
        if how == "kill a young driver":
            case = Struck(number, "(driver)", 0, how, "start", [], load=load)
            case.seconds, case.wrong = young.killed(chance)
            case.outcome = "nothing left"
        else:
            case = self._strike(number, how, chance)
            case.load = load
        self.done.append(case)
        return case

    def _strike(self, number: int, how: str, chance: random.Random) -> Struck:
        when, strategy = _drawn(chance, WHENS), chance.choice([*JOBS])
        iterations = chance.randrange(3, 12) if when == "exit" else LONG
        exp = experiment(
            chance,
            strategy=strategy,
            iterations=iterations,
            timeout=f"{TIMEOUT} s",
            network=wb.Network(),
        )
        case = Struck(number, strategy, exp.ranks, how, when, [])
        run = wb.run(exp)
        try:
            _reach(run, when, chance)
            begin = time.monotonic()
            _hit(run, how, case, chance)
            _await(run, case)
            case.seconds = time.monotonic() - begin
            _judge(run, case)
        except Exception as error:
            case.wrong = f"{type(error).__name__}: {error}"
        finally:
            _clear(run)
        if remains(lambda: not gone(run.pids.values()), 5.0):
            case.wrong += " ranks are left"
        return case

    def left(self) -> dict[str, int]:
        """Return what this process and its pool have more of than before the first case."""
        assert self._before is not None
        return settled(self._before, MOST_SPARE)

    def summary(self) -> dict[str, Any]:
        """The figures, by way of striking and in all."""
        groups = {how: [one for one in self.done if one.how == how] for how in HOWS}
        return {
            how: {
                "cases": len(cases),
                **Counter(one.outcome for one in cases if not one.wrong),
                "wrong": sum(bool(one.wrong) for one in cases),
                **_seconds(cases),
            }
            for how, cases in {**groups, "all": self.done}.items()
            if cases
        }

    def save(self, path: Path, left: dict[str, int]) -> None:
        report = {
            "seed": self.seed,
            "timeout_s": TIMEOUT,
            "left": left,
            "summary": self.summary(),
            "cases": [asdict(one) for one in self.done],
        }
        path.write_text(json.dumps(report, indent=1))


def _drawn(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices([*weights], [*weights.values()])[0]


def _reach(run: wb.Run, when: str, chance: random.Random) -> None:
    """Wait for the moment: of the start from the first on, of the exit until it is over."""
    if when == "start":
        time.sleep(chance.choice([0.0, chance.uniform(0, 0.1), chance.uniform(0, 1.0)]))
        return
    at = run.experiment.iterations - 1 if when == "exit" else chance.randrange(1, 4)
    deadline = time.monotonic() + 120
    while not run.done and run.iteration < at:
        if time.monotonic() > deadline:
            raise AssertionError(f"not in iteration {at} within 120 s")
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.05 if when == "exit" else 0.5))


def _hit(run: wb.Run, how: str, case: Struck, chance: random.Random) -> None:
    two = how in ("kill two", "freeze one, kill another")
    case.victims = chance.sample([*run.pids], min(1 + two, len(run.pids)))
    for index, rank in enumerate(case.victims):
        if how.startswith("freeze") and index == 0:
            _signal(run, rank, signal.SIGSTOP)
        if how.startswith("kill") or index == 1:
            _signal(run, rank, signal.SIGKILL)
    if how == "freeze, kill it" or (how == "freeze one, kill another" and len(case.victims) == 1):
        time.sleep(chance.uniform(0, 0.3))
        _signal(run, case.victims[0], signal.SIGKILL)


def _signal(run: wb.Run, rank: int, number: signal.Signals) -> None:
    """To a rank that lives, or is a zombie: its number is not used again while the run is."""
    if rank not in run._ranks.ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pids[rank], number)


def _await(run: wb.Run, case: Struck) -> None:
    """Until it is over; one that may go on, until it is seen to."""
    spared = case.strategy in (SPARE_FROZEN if case.how == "freeze" else SPARE_DEAD)
    limit = WENT_ON + (TIMEOUT if case.how == "freeze" else 0) if spared else LATE
    deadline = time.monotonic() + limit
    while not run.done and time.monotonic() < deadline:
        time.sleep(0.002)
    if run.done:
        return
    if not spared:
        raise AssertionError(f"not over within {LATE:.0f} s, in iteration {run.iteration}")
    case.outcome = "went on"
    for pid in run.pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    run.stop()
    run.wait(timeout=60, check=False, progress=False)


def _judge(run: wb.Run, case: Struck) -> None:
    error, own = run.result.error, case.victims
    case.words = str(error).splitlines()[0] if error is not None else ""
    if case.outcome == "went on":
        named = isinstance(error, wb.PeerLost) and error.rank in own
        fine = run.result.ok or named or isinstance(error, wb.RunTimeout)
        case.wrong = "" if fine else f"went on, then: {error}"
    elif error is None:
        case.outcome = "was over"
        if not set(run.result.lost) <= set(own):
            case.wrong = f"lost {run.result.lost}, struck {own}"
        elif case.when != "exit" and case.strategy not in SPARE_DEAD:
            case.wrong = "it came to its end without ranks that were struck in its middle"
    elif isinstance(error, wb.PeerLost):
        case.outcome = "named"
        frozen_only = case.how == "freeze"
        if error.rank not in own or (frozen_only and "SIGSTOP" not in str(error)):
            case.wrong = f"named rank {error.rank}, struck {own}: {error}"
        elif not frozen_only and run.events.filter(kind="detect", peer=error.rank).is_empty():
            case.wrong = f"no row says that rank {error.rank}'s end was noticed"
    elif isinstance(error, wb.RunTimeout):
        case.outcome = "named"
        stopped = [f"rank {rank} (process {run.pids[rank]}) is stopped" for rank in own]
        waits = [f"rank {rank}, which is stopped (SIGSTOP)" for rank in own]
        if not any(words in str(error) for words in stopped + waits):
            case.wrong = f"no word of {own}: {error}"
    else:
        case.wrong = f"{type(error).__name__}: {error}"


def _clear(run: wb.Run) -> None:
    for rank in run.pids:
        _signal(run, rank, signal.SIGKILL)
    with contextlib.suppress(wb.RunTimeout):
        run.wait(timeout=60, check=False, progress=False)


def _seconds(cases: list[Struck]) -> dict[str, float]:
    """Of those whose end tells something: not of a run that was let go on, and stopped."""
    seconds = [one.seconds for one in cases if one.outcome != "went on" and not one.wrong]
    if not seconds:
        return {}
    return {"median_s": round(statistics.median(seconds), 3), "worst_s": round(max(seconds), 3)}
