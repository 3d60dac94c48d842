"""Chaos: one run after the other, each with faults drawn from a seed, judged by what is always so.

    for trial in trials(exp, seed=1):      # until told to stop
        outcome = done(trial)
        outcome.wrong                      # "" or what should not be

Seed and number of a trial decide its faults, so that a failure can be had again. What must hold:
the run ends in time; where it recovers, or no rank was lost, it ends well, with every loss there
and replicas that are equal to the bit, and in float64 with the losses of the uninterrupted
training (studies/uninterrupted.py); where it cannot go on, or no rank is left of a role (such as
the only server), its error names a rank that was struck;
nothing was noticed without a fault, no loss of a rank went unnoticed, no process is left.

Source  Basiri et al., "Chaos Engineering", IEEE Software 33(3), 2016: a steady state is defined
        first, and then experiments try to disprove it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import isfinite

from workbench.common.errors import PeerLost, TooFewRanks, WorkbenchError
from workbench.common.units import counted
from workbench.experiment.elastic_checks import is_elastic
from workbench.experiment.faults import FailToStart, Fault, Kill, Preempt
from workbench.experiment.scenario import Kind, Scenario
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import traits_of
from workbench.runs.enough import missing_role
from workbench.runs.run import Run, start
from workbench.shared_memory.segments import process_state
from workbench.store.result import Result
from workbench.studies.uninterrupted import differs_from_uninterrupted

PATIENCE_S = 120.0  # of a run, besides its own timeout: a machine may be busy
END_S = 5.0  # for processes to be gone after their run
MOST_FAULTS = 6.0  # of one run, on the average of the wildest


@dataclass(frozen=True)
class Trial:
    """One run to be: ``number`` and ``seed`` decide the faults of ``experiment``."""

    seed: int
    number: int
    experiment: Experiment

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of its experiment."""
        return self.experiment.faults


@dataclass(frozen=True)
class Outcome:
    """A trial that is over. ``wrong``: what should not be, in words; "" where all is well.
    ``struck``: how many faults there were; a run that ends early meets fewer than were drawn.
    """

    trial: Trial
    seconds: float
    wrong: str
    how: str  # it ended
    struck: int

    @property
    def words(self) -> str:
        """The trial in a line."""
        kinds = [one.fault for one in self.trial.faults]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "none"
        end = f"WRONG: {self.wrong}" if self.wrong else self.how
        return f"{self.trial.number:5}  {self.seconds:6.1f} s  faults: {counts}; {end}"


def trials(exp: Experiment, *, seed: int, first: int = 0) -> Iterator[Trial]:
    """Yield trials without end, beginning with number ``first``. Raises SpecError where faults do
    not fit the experiment.
    """
    for number in count(first):
        draw = random.Random(f"chaos {seed}/{number}")
        expected = draw.uniform(0, MOST_FAULTS)
        kinds = _kinds(exp)
        weights = [draw.random() for _ in kinds]
        scale = expected / (sum(weights) or 1.0) / exp.iterations
        rates: dict[Kind, float] = {
            kind: min(1.0, weight * scale) for kind, weight in zip(kinds, weights, strict=True)
        }
        scenario = Scenario(rates=rates, seed=draw.randrange(2**62))
        yield Trial(seed, number, scenario.on(exp))


def _kinds(exp: Experiment) -> list[Kind]:
    """Return the kinds of faults that an experiment is to survive, or to name."""
    kinds: list[Kind] = ["kill", "freeze", "slow"]
    if exp.ranks > 1 and exp.backend == "workbench":
        kinds += ["cut", "partition"]
    if exp.bad_minibatch == "skip":
        kinds += ["corrupt"]
    if exp.recovers:  # else the signal ends a process that has not asked to hear of it
        kinds += ["preempt"]
    if exp.recovers and exp.min_ranks:  # else all ranks must be there at the start
        kinds += ["fail_to_start"]
    if exp.ranks > 1 and is_elastic(exp):
        kinds += ["join"]
    return kinds


def done(trial: Trial) -> Outcome:
    """Do a trial, and judge it. A run that does not end is ended."""
    began, pids, wrong = time.monotonic(), set[int](), ""
    live = start(trial.experiment)
    limit = began + PATIENCE_S + 2e-9 * trial.experiment.timeout_ns
    try:
        while not live.done and time.monotonic() < limit:
            pids |= {*live.pids.values()}  # also of processes that are replaced
            time.sleep(0.02)
        if not live.done:
            wrong = f"it has not ended after {limit - began:.0f} s"
    finally:
        pids |= {*live.pids.values()}
        if not live.done:
            for rank in live.pids:
                live.kill(rank)
    result = live.wait(timeout=PATIENCE_S, check=False)
    wrong = wrong or _judge(trial.experiment, live, result) or _left(pids)
    how = "ended well" if result.ok else f"ended by {type(result.error).__name__}, as it must"
    if result.lost:
        how += f" without {counted(len(result.lost), 'rank')}"
    return Outcome(trial, time.monotonic() - began, wrong, how, len(live.detection().each))


def _judge(exp: Experiment, live: Run, result: Result) -> str:
    """Return what should not be; "" where all is as it must."""
    ends = {one.rank for one in exp.faults if isinstance(one, Kill | Preempt | FailToStart)}
    if result.error is not None:
        return _judge_error(exp, result.error, ends)
    if len(result.losses) != exp.iterations and exp.stop_after is None:
        return f"{len(result.losses)} losses of {exp.iterations} iterations"
    skipped = {one.iteration for one in live.skipped()}
    if bad := [i for i, x in enumerate(result.losses) if not isfinite(x) and i not in skipped]:
        return f"the loss of iteration {bad[0] + 1} is not finite"
    equal = traits_of(exp.strategy).replicas == "equal"
    if equal and len(set(result.digests.values())) > 1:
        return "replicas differ at the end"
    detection = live.detection()
    if detection.missed:
        return f"not noticed: {detection.missed[0].words}"
    if detection.false_alarms:
        alarm = detection.false_alarms[0]
        return f"a false alarm: {alarm.name!r} about rank {alarm.rank}"
    return differs_from_uninterrupted(exp, live, result)


def _judge_error(exp: Experiment, error: WorkbenchError, ends: set[int]) -> str:
    """Return why a run should not have ended by this error; "" where it must."""
    headline = str(error).splitlines()[0] if str(error) else ""
    if isinstance(error, TooFewRanks) and error.rank in ends and _too_few(exp, ends):
        return ""
    if exp.recovers or not ends:
        return f"it ended by {type(error).__name__}: {headline}"
    if not isinstance(error, PeerLost) or error.rank not in ends:
        return (
            f"ranks {sorted(ends)} were struck, and it ended by {type(error).__name__}: {headline}"
        )
    return ""


def _too_few(exp: Experiment, ends: set[int]) -> bool:
    """Return whether without these ranks the run may end: there are fewer than its minimum, or
    no rank plays one of the roles, and no policy starts another.
    """
    rest = {*range(exp.ranks)} - ends
    replaced = exp.recovery in ("replace", "restart")
    return len(rest) < (exp.min_ranks or 1) or (not replaced and missing_role(exp, rest) != "")


def _left(pids: set[int]) -> str:
    """Return which processes outlive their run."""
    deadline = time.monotonic() + END_S
    while left := [pid for pid in pids if process_state(pid) not in "ZX"]:
        if time.monotonic() > deadline:
            return f"processes {left} are left"
        time.sleep(0.05)
    return ""
