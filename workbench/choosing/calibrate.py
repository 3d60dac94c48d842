"""``wb.calibrate()``: what moving and adding cost on this machine, from algorithms timed on it.

    print(wb.calibrate())           a quarter of a minute, best while nothing else runs

Every algorithm of every operation is timed at sizes from 1 KB to 64 MB. One machine (α, overhead,
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
from workbench.choosing.costs import SLOT_BYTES, Costs, cores, save, sizes_between
from workbench.choosing.crew import Crew, calls_of
from workbench.choosing.fit import Timed, burst, fit, smoothed
from workbench.collectives import OPERATIONS
from workbench.errors import SpecError

KB, MB = 1 << 10, 1 << 20
SMALLEST, LARGEST = KB, 64 * MB
HOPELESS = 4.0  # times as long as the best: not timed at larger sizes, it is not taken there
ROUNDS, FEW = 9, 4  # few where each is long
LONG = 2 * MB
QUIET = 0.25  # of the rounds, the quick ones: others may have the cores too


@dataclass(frozen=True, repr=False)
class Calibration:
    """What was found: ``costs`` are what "auto" goes by from now on."""

    costs: Costs
    points: tuple[Timed, ...]
    errors: dict[int, float]  # by number of ranks: root mean square of one machine's misses
    between: dict[int, float]  # the same at sizes left out, with each algorithm's own factors
    seconds: float
    file: Path | None = None

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        told = [f"{len(self.points)} times of real ranks in {self.seconds:.0f} s."]
        for n, one in sorted(self.costs.machines.items()):
            told.append(
                f"{n} ranks: {one.words}. One machine for all "
                f"algorithms misses by {self.errors[n]:.0%}; with each one's own factor, sizes "
                f"left out by {self.between[n]:.0%}."
            )
        told += [
            f"auto, {operation}, {n} ranks: {in_words(ranges(operation, n, self.costs))}."
            for operation in dict.fromkeys(one.operation for one in self.points)
            for n in sorted(self.costs.machines)
            if operation != "barrier" and len(candidates(operation, n)) > 1
        ]
        if self.file is not None:
            told.append(f"Kept in {self.file}.")
        return "\n".join(told)


def calibrate(
    ranks: Sequence[int] = (2, 4), operations: Sequence[str] = OPERATIONS, *,
    keep: bool = True, progress: bool | None = None,
) -> Calibration:  # fmt: skip
    """Time the algorithms of ``operations`` with each number of ranks; fit this machine to it.

    ``keep``: later runs, of this user on this machine, go by it. ``progress``: a bar in the
    terminal, a line in a notebook (default: if there is one). Raises SpecError, WorkbenchError.
    """
    if not ranks or any(not isinstance(n, int) or n < 2 for n in ranks):
        raise SpecError(f"ranks = {ranks!r}: numbers of processes, each 2 or more")
    for operation in operations:
        algorithms(operation)  # is there such a one?
    began, points, wakes = time.monotonic(), [], {}
    say = _printer() if (sys.stderr.isatty() if progress is None else progress) else None
    for n in sorted({*ranks}):
        with Crew(n) as crew:
            wakes[n] = statistics.median(crew.rounds("sleep", "", 0, rounds=20))
            for operation in operations:
                points += _timed(crew, operation, say)
    if say:
        say("")
    costs, errors = fitted(points, wakes)
    result = Calibration(
        costs, tuple(points), errors, _left_out(points, wakes), time.monotonic() - began
    )
    return replace(result, file=save(costs)) if keep else result


def _printer() -> Callable[[str], None]:
    return lambda words: print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def _timed(crew: Crew, operation: str, say: Callable[[str], None] | None) -> list[Timed]:
    names, found = [*candidates(operation, crew.n)], []
    for nbytes in (0,) if operation == "barrier" else sizes_between(SMALLEST, LARGEST):
        if say:
            say(f"{crew.n} ranks: {operation}, {nbytes:,} bytes")
        many = (FEW, HOPELESS) if nbytes > LONG else (ROUNDS, math.inf)
        at = crew.race(operation, names, nbytes, many[0], QUIET, many[1])
        calls = calls_of(nbytes)
        found += [Timed(operation, name, crew.n, nbytes, calls, at[name]) for name in names]
        best = min(at.values())
        if nbytes > 64 * KB:
            names = [name for name in names if at[name] < HOPELESS * best]
        if len(names) == 1 and nbytes >= 4 * MB:
            break  # there is nothing to choose any more
    return found


def fitted(
    points: Sequence[Timed], wakes: dict[int, float], on: int | None = None
) -> tuple[Costs, dict[int, float]]:
    """Costs that these points say, and how far one machine is off, by number of ranks."""
    on = on or cores()
    machines, errors = {}, {}
    off: dict[tuple[str, str, int], tuple[tuple[int, float], ...]] = {}
    for n in sorted({one.n for one in points}):
        own = [one for one in points if one.n == n]
        machine, errors[n] = fit(own, on)
        machines[n] = replace(machine, wake_s=max(0.0, wakes.get(n, 0.0)))
        ratios: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
        for one in own:
            model = burst(one, machine, on).seconds
            key = one.operation, one.algorithm, n
            ratios.setdefault(key, []).append((one.nbytes, one.seconds / model))
        off |= {key: smoothed(each) for key, each in ratios.items()}
    source = f"measured on this machine, {time.strftime('%Y-%m-%d')}"
    return Costs(machines, off, slot_bytes=SLOT_BYTES, cores=on, source=source), errors


def _left_out(points: Sequence[Timed], wakes: dict[int, float]) -> dict[int, float]:
    """Every other size is left out, and told from the rest: the root mean square of the misses."""
    sizes = sorted({one.nbytes for one in points})
    held = {*sizes[1:-1:2]}
    kept = [one for one in points if one.nbytes not in held]
    costs, _ = fitted(kept, wakes)
    found: dict[int, list[float]] = {}
    for one in points:
        key = one.operation, one.algorithm, one.n
        if one.nbytes in held and len(costs.off.get(key, ())) > 1:
            factor = costs.factor(*key, one.nbytes)
            model = burst(one, costs.machine(one.n), costs.cores).seconds * factor
            found.setdefault(one.n, []).append((model / one.seconds - 1) ** 2)
    return {n: statistics.fmean(found.get(n, [0.0])) ** 0.5 for n in costs.machines}
