"""Seconds of an algorithm by its walk: one call, or a burst of them as they are timed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from workbench.choosing.clock import Time, replay
from workbench.choosing.costs import PLAIN, SLOT_BYTES, Costs, Links, Machine, slow_down
from workbench.common import extensions
from workbench.theory.walk import ROOTED, Move, walk

Function = Callable[..., Any]
LINEAR_FROM = 2  # slots a rank: from here on every further slot costs the same
MOST_CALLS = 4  # of a burst are walked through: later ones cost what these do
MOST_MOVES = 100_000  # of walks that are kept: 16 MB or so


def function_of(operation: str, algorithm: str) -> Function:
    """Return the function that ``collectives/<operation>_<algorithm>.py`` defines."""
    module = extensions.load("collectives", f"{operation}_{algorithm}")
    result: Function = getattr(module, operation)
    return result


def predict(operation: str, algorithm: str | Function, n: int, nbytes: int, costs: Costs) -> float:
    """Return the seconds until the last rank is done, if all begin at once.

    ``algorithm``: a name, or a function like those of the files. Raises CollectiveError if it
    cannot be simulated.
    """
    name = algorithm if isinstance(algorithm, str) else algorithm.__name__
    function = function_of(operation, algorithm) if isinstance(algorithm, str) else algorithm
    factor, machine = costs.factor(operation, name, n, nbytes), costs.machine(n)
    links, cores, slot_bytes = costs.links, costs.cores, costs.slot_bytes
    if links.paced:  # what is on its way is not slower for it
        machine, factor = slow_down(machine, factor), 1.0
    time = time_of_walk(
        operation, function, n, nbytes, machine, links, cores=cores, slot_bytes=slot_bytes
    )
    return time.seconds * factor


class _Case(NamedTuple):
    """Calls of one kind, on any number of bytes."""

    operation: str
    function: Function
    n: int
    machine: Machine
    links: Links
    cores: int
    slot_bytes: int
    calls: int


def time_of_walk(
    operation: str,
    function: Function,
    n: int,
    nbytes: int,
    machine: Machine,
    links: Links = PLAIN,
    *,
    cores: int = 1 << 20,
    slot_bytes: int = SLOT_BYTES,
    calls: int = 1,
) -> Time:
    """Return the time per call of ``calls`` calls in a row, with the root going round."""
    if n == 1:
        return Time(0.0)
    calls = min(calls, MOST_CALLS)
    case = _Case(operation, function, n, machine, links, cores, slot_bytes, calls)
    first = LINEAR_FROM * n * slot_bytes
    if nbytes <= 2 * first:
        return _time(nbytes, case)
    more, low, high = (nbytes - first) / first, _time(first, case), _time(2 * first, case)
    return Time(*(a + (b - a) * more for a, b in zip(low, high, strict=True)))


@lru_cache(1024)
def _time(nbytes: int, case: _Case) -> Time:
    operation, function, n, machine, links, cores, slot_bytes, calls = case
    moves = _moves(operation, function, n, nbytes, slot_bytes, calls, links.levels)
    return Time(*(part / calls for part in replay(moves, machine, links, cores)))


def busiest_sends(
    operation: str, algorithm: str, n: int, nbytes: int, costs: Costs
) -> tuple[float, ...]:
    """Return the bytes and slots that the busiest core sends, and those of the busiest rank.

    Where ranks outnumber cores a core sends for several of them, at best for equally many.
    """
    function = function_of(operation, algorithm)
    moves = _moves(operation, function, n, nbytes, costs.slot_bytes, 1, costs.links.levels)
    out = [[move.nbytes for move in moves_of if move.to >= 0] for moves_of in moves]
    by_rank = [*map(sum, out)], [*map(len, out)]
    ranks = [max(each) for each in by_rank]
    return *(max(sum(each) / costs.cores, *each) for each in by_rank), *ranks


Moves = list[list[Move]]  # by rank


class Walks:
    """A cache of walks. Its size is in moves, ``most`` of them in all.

    One walk of many ranks has as many moves as thousands of few ranks.
    """

    def __init__(self, most: int = MOST_MOVES) -> None:
        self.most, self.moves = most, 0
        self._kept: OrderedDict[tuple[object, ...], Moves] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self,
        operation: str,
        function: Function,
        n: int,
        nbytes: int,
        slot_bytes: int,
        calls: int,
        levels: tuple[int, ...],
    ) -> Moves:
        key = operation, function, n, nbytes, slot_bytes, calls, levels
        with self._lock:
            if (kept := self._kept.pop(key, None)) is not None:
                self._kept[key] = kept  # the last to go
                return kept
        moves = _burst(operation, function, n, nbytes, slot_bytes, calls, levels)
        with self._lock:
            self._let_go(key)  # another thread may have made it meanwhile
            self._kept[key] = moves
            self.moves += sum(map(len, moves))
            while self.moves > self.most:
                self._let_go(next(iter(self._kept)))
        return moves

    def _let_go(self, key: tuple[object, ...]) -> None:
        self.moves -= sum(map(len, self._kept.pop(key, ())))


def _burst(
    operation: str,
    function: Function,
    n: int,
    nbytes: int,
    slot_bytes: int,
    calls: int,
    levels: tuple[int, ...],
) -> Moves:
    roots = range(min(n, calls)) if operation in ROOTED else (0,)
    each = [walk(operation, function, n, nbytes, slot_bytes, root, levels) for root in roots]
    return [
        [move for call in range(calls) for move in each[call % len(each)][rank]]
        for rank in range(n)
    ]


_moves = Walks()
