"""``wb.calibrate()``: what moving and adding cost on this machine, from algorithms timed on it.

    print(wb.calibrate())           a quarter of a minute, best while nothing else runs

Every algorithm of every operation is timed at sizes from 1 KiB to 64 MiB. One machine (α, overhead,
β, γ) is fitted to all times of a number of ranks. It tells apart what a link and what a processor
costs, but not what caches and the system's scheduler do to one algorithm and not to another: so
each algorithm keeps, by size, how far its own times are from its walk, and "auto" counts with that.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.choosing.choose import algorithms, candidates, in_words, ranges
from workbench.choosing.costs import (
    SLOT_BYTES,
    WHAT,
    Costs,
    Machine,
    cores,
    place,
    save,
    sizes_between,
)
from workbench.collectives import OPERATIONS
from workbench.common.arguments import Names, RealRanks, checked
from workbench.common.errors import SpecError
from workbench.common.output_files import make_ready
from workbench.common.progress_line import progress_line
from workbench.recording.run_queue import others_share
from workbench.studies.crossover.fit import Timed, burst, fit, smooth
from workbench.studies.crossover.timing_pool import TimingPool, calls_of

KB, MB = 1 << 10, 1 << 20
SMALLEST, LARGEST = KB, 64 * MB
HOPELESS = 4.0  # times as long as the best: not timed at larger sizes, it is not taken there
ROUNDS, FEW = 9, 4  # few where each is long
LONG = 2 * MB
LOOKS, BUSY = 0.3, 0.2  # seconds before it begins; others' share of the cores that is told
QUIET = 0.25  # of the rounds, the quick ones: others may have the cores too


@dataclass(frozen=True, repr=False)
class Calibration:
    """The result of a calibration: "auto" uses ``costs`` from now on."""

    costs: Costs
    points: tuple[Timed, ...]
    errors: dict[int, float]  # by number of ranks: root mean square of one machine's misses
    between: dict[int, float]  # the same at sizes left out, with each algorithm's own factors
    seconds: float
    file: Path | None = None
    others: float = 0.0  # the share of the cores that others kept busy before it began

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{len(self.points)} times of real ranks in {self.seconds:.0f} s."]
        for n, one in sorted(self.costs.machines.items()):
            lines.append(
                f"{n} ranks: {one.words}. One machine for all "
                f"algorithms misses by {self.errors[n]:.0%}; with each one's own factor, sizes "
                f"left out by {self.between[n]:.0%}."
            )
        lines += [
            f"auto, {operation}, {n} ranks: {in_words(ranges(operation, n, self.costs))}."
            for operation in dict.fromkeys(one.operation for one in self.points)
            for n in sorted(self.costs.machines)
            if operation != "barrier" and len(candidates(operation, n)) > 1
        ]
        if self.others > BUSY:
            lines.append(
                f"When this began, other work kept {self.others:.0%} of the cores busy: all these "
                "times may be longer than this machine needs. Calibrate again when it is idle."
            )
        if self.file is not None:
            lines.append(f"Kept in {self.file}.")
        return "\n".join(lines)


@checked
def calibrate(
    ranks: RealRanks = (2, 4),
    operations: Names = OPERATIONS,
    *,
    keep: bool = True,
    progress: bool | None = None,
) -> Calibration:
    """Time the algorithms of ``operations`` with each number of ranks; fit this machine to it.

    ``keep``: later runs, of this user on this machine, go by it. ``progress``: a bar in the
    terminal, a line in a notebook (default: if there is one). Raises SpecError, WorkbenchError.

    >>> print(wb.calibrate(ranks=(2,), operations=["all_reduce"]))
    """
    if min(ranks) < 2:
        raise SpecError(f"ranks = {ranks!r}: numbers of processes, each 2 or more")
    for operation in operations:
        algorithms(operation)  # is there such a one?
    if keep:
        make_ready(place(), WHAT)  # now, not after the measurement
    others = others_share(LOOKS)
    began, points, wakes = time.monotonic(), [], {}
    say = progress_line(sys.stderr.isatty() if progress is None else progress)
    for n in sorted({*ranks}):
        with TimingPool(n) as pool:
            wakes[n] = statistics.median(pool.rounds("sleep", "", 0, rounds=20))
            for operation in operations:
                points += _measure(pool, operation, say)
    say("")
    costs, errors = fit_machines(points, wakes)
    result = Calibration(
        costs,
        tuple(points),
        errors,
        _left_out(points, wakes),
        time.monotonic() - began,
        others=others,
    )
    return replace(result, file=save(costs)) if keep else result


def _measure(pool: TimingPool, operation: str, say: Callable[[str], None]) -> list[Timed]:
    names, result = [*candidates(operation, pool.n)], []
    for nbytes in (0,) if operation == "barrier" else sizes_between(SMALLEST, LARGEST):
        say(f"{pool.n} ranks: {operation}, {nbytes:,} bytes")
        many = (FEW, HOPELESS) if nbytes > LONG else (ROUNDS, math.inf)
        at = pool.race(operation, names, nbytes, many[0], QUIET, many[1])
        calls = calls_of(nbytes)
        result += [Timed(operation, name, pool.n, nbytes, calls, at[name]) for name in names]
        best = min(at.values())
        if nbytes > 64 * KB:
            names = [name for name in names if at[name] < HOPELESS * best]
        if len(names) == 1 and nbytes >= 4 * MB:
            break  # there is nothing to choose any more
    return result


def fit_machines(
    points: Sequence[Timed], wakes: dict[int, float], on: int | None = None
) -> tuple[Costs, dict[int, float]]:
    """Return the costs that fit these points, and each machine's error, by number of ranks."""
    on = on or cores()
    machines, errors = {}, {}
    off: dict[tuple[str, str, int], tuple[tuple[int, float], ...]] = {}
    for n in sorted({one.n for one in points}):
        of_n = [one for one in points if one.n == n]
        machine, errors[n] = fit(of_n, on)
        machines[n] = replace(machine, wake_s=max(0.0, wakes.get(n, 0.0)))
        ratios: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
        for one in of_n:
            key = one.operation, one.algorithm, n
            ratios.setdefault(key, []).append((one.nbytes, one.seconds / _walked(one, machine, on)))
        off |= {key: smooth(each) for key, each in ratios.items()}
    source = f"measured on this machine, {time.strftime('%Y-%m-%d')}"
    return Costs(machines, off, slot_bytes=SLOT_BYTES, cores=on, source=source), errors


def _walked(one: Timed, machine: Machine, on: int) -> float:
    """Return the seconds of one call, which are what ``predict`` multiplies by a factor.

    So it predicts what a call takes in a row of them, where the next begins on the ranks that are
    done first.
    """
    return burst(replace(one, calls=1), machine, on).seconds


def _left_out(points: Sequence[Timed], wakes: dict[int, float]) -> dict[int, float]:
    """Return the root mean square error of predicting every other size from the rest."""
    sizes = sorted({one.nbytes for one in points})
    held = {*sizes[1:-1:2]}
    kept = [one for one in points if one.nbytes not in held]
    costs, _ = fit_machines(kept, wakes)
    result: dict[int, list[float]] = {}
    for one in points:
        key = one.operation, one.algorithm, one.n
        if one.nbytes in held and len(costs.off.get(key, ())) > 1:
            factor = costs.factor(*key, one.nbytes)
            model = _walked(one, costs.machine(one.n), costs.cores) * factor
            result.setdefault(one.n, []).append((model / one.seconds - 1) ** 2)
    return {n: statistics.fmean(result.get(n, [0.0])) ** 0.5 for n in costs.machines}
