"""Bytes that each rank of a mesh sends in an iteration, by axis and collective: exact.

A stage of P elements of e bytes, m microbatches; d ranks on dp, f on fsdp, t on tp; every
all-reduce and gather in a ring, whose ranks send, of n elements that divide evenly:

    zero 0      all-reduce of P over d·f ranks        2 (df-1)/df P e
    zero 1      reduce-scatter, gather over f         2 (f-1)/f P e,  all-reduce over d of P/f
    zero 2      a reduce-scatter a microbatch         (m+1) (f-1)/f P e,  the same
    zero 3      two gathers and one a microbatch      3m (f-1)/f P e,  the same
    tp          each layer's own calls, forward and backward, for each microbatch
    tp, tokens  and once the gradients that are partial there: 2 (t-1)/t of their bytes
    pp          what crosses a cut: values forward, their gradients backward

P is what a rank has after tp has divided the layers. What does not divide is filled up: each layer
at zero 1 and 2, each parameter by its rows at zero 3.

Worked: P = 1,000, e = 4, on 4 ranks: dp 4 sends 6,000 B; fsdp 4 at zero 1 sends 3,000 B twice, at
zero 3 9,000 B; dp 2, fsdp 2 at zero 3 sends 4,000, 2,000 and 2,000 B over dp.

Papers  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        SC 2020; Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
        Using Megatron-LM", SC 2021.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workbench.formulas import find
from workbench.formulas.by_rows import ByRows
from workbench.formulas.grid import DATA, Grid, name_of_line

P2P = "p2p"  # the collective of messages from one rank to another, as records name it


@dataclass(frozen=True)
class Parameter(ByRows):
    """A parameter as tp has left it, in elements. ``partial``: its gradient is added up over tp."""

    partial: bool = False


@dataclass(frozen=True)
class Call:
    """A collective over tp: the bytes of its whole tensor, for ``samples`` samples."""

    collective: str
    nbytes: int
    samples: int


@dataclass(frozen=True)
class Stage:
    """``units``: parameters that are reduced at once. ``calls``: of one microbatch, both ways."""

    units: tuple[tuple[Parameter, ...], ...]
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A model on a mesh. ``rank_of``: the place on pp of each stage; ``cuts``: by the samples of a
    microbatch, for each cut the bytes of its values and of their gradients.
    """

    grid: Grid
    zero: int
    itemsize: int
    stages: tuple[Stage, ...]
    rank_of: tuple[int, ...] = (0,)
    cuts: Mapping[int, Sequence[tuple[Sequence[int], Sequence[int]]]] | None = None
    all_reduce: str = "ring"


class Sent(NamedTuple):
    """Collectives of one rank over one axis: how many, and the bytes that it sends in them."""

    calls: int
    nbytes: int


Key = tuple[str, str]  # axis, collective


def sent(layout: Layout, rank: int, microbatches: Sequence[int]) -> dict[Key, Sent]:
    """Return the calls of a rank in one iteration, and their bytes. ``microbatches``: the samples
    of each that its pipeline takes.
    """
    place = layout.grid.place(rank, "pp")
    total: dict[Key, Sent] = defaultdict(lambda: Sent(0, 0))
    for index, stage in enumerate(layout.stages):
        if layout.rank_of[index] != place:
            continue
        each = [
            *_updates(layout, stage, rank, len(microbatches)),
            *_within(layout, stage, rank, microbatches),
            *_across(layout, index, microbatches),
        ]
        for axis, collective, times, nbytes in each:
            calls, before = total[axis, collective]
            total[axis, collective] = Sent(calls + times, before + times * nbytes)
    return dict(total)


def added_over(grid: Grid, zero: int) -> tuple[str, ...]:
    """Return the axes over which gradients are added up in one line."""
    among = ("dp",) if zero else DATA
    return tuple(name for name, _ in grid.axes if name in among)


Calls = Iterator[tuple[str, str, int, int]]  # axis, collective, how often, bytes of each


def _updates(layout: Layout, stage: Stage, rank: int, microbatches: int) -> Calls:
    """Yield the sums of gradients, and the gathers of parameters."""
    grid, zero = layout.grid, layout.zero
    axes = added_over(grid, zero)
    divided = ("fsdp",) if zero else ()
    d, place = grid.size(*axes), grid.place(rank, *axes)
    f, at = grid.size(*divided), grid.place(rank, *divided)
    own = [_own(unit, at, f, zero) for unit in stage.units]
    for unit in stage.units if f > 1 else ():
        nbytes = _padded(unit, f, zero) // f * (f - 1) * layout.itemsize
        yield "fsdp", "reduce_scatter", microbatches if zero > 1 else 1, nbytes
        yield "fsdp", "all_gather", 2 * microbatches if zero == 3 else 1, nbytes
    if d > 1:
        for part, _ in own:
            yield name_of_line(axes), "all_reduce", 1, _all_reduced(layout, d, part, place)
    if any(one.partial for unit in stage.units for one in unit):
        partial = sum(of_part for _, of_part in own)
        tp = grid.size("tp"), grid.place(rank, "tp")
        yield "tp", "all_reduce", 1, _all_reduced(layout, tp[0], partial, tp[1])


def _padded(unit: Iterable[Parameter], f: int, zero: int) -> int:
    if zero == 3:
        return sum(one.padded(f) for one in unit)
    return -(-sum(one.total for one in unit) // f) * f


def _own(unit: Sequence[Parameter], at: int, f: int, zero: int) -> tuple[int, int]:
    """Return the elements of a rank's part, and how many of them are partial over tp."""
    if zero == 3 and f > 1:
        return sum(one.part(at, f) for one in unit), sum(
            one.part(at, f) for one in unit if one.partial
        )
    share = -(-sum(one.total for one in unit) // f)
    first, partial = 0, 0
    for one in unit:
        here = min(first + one.total, (at + 1) * share) - max(first, at * share)
        partial += max(0, here) if one.partial else 0
        first += one.total
    return share, partial


def _within(layout: Layout, stage: Stage, rank: int, microbatches: Sequence[int]) -> Calls:
    """Yield the calls over tp of forward and backward passes."""
    t, place = layout.grid.size("tp"), layout.grid.place(rank, "tp")
    for call in stage.calls if t > 1 else ():
        for samples in microbatches:
            nbytes = call.nbytes * samples // call.samples
            if call.collective == "all_reduce":
                elements = nbytes // layout.itemsize
                yield "tp", "all_reduce", 1, _all_reduced(layout, t, elements, place)
            else:
                yield "tp", call.collective, 1, nbytes // t * (t - 1)


def _across(layout: Layout, index: int, microbatches: Sequence[int]) -> Calls:
    """Yield the messages of a stage to others: values forward, gradients backward."""
    rank_of = layout.rank_of
    for cut, target, way in ((index, index + 1, 0), (index - 1, index - 1, 1)):
        if 0 <= target < len(rank_of) and rank_of[target] != rank_of[index]:
            assert layout.cuts is not None
            for samples in microbatches:
                for nbytes in layout.cuts[samples][cut][way]:
                    yield "pp", P2P, 1, nbytes


def _all_reduced(layout: Layout, n: int, elements: int, place: int) -> int:
    if not elements:
        return 0
    return find(layout.all_reduce).sent(n, elements)[place] * layout.itemsize
