"""Units of ZeRO 1 and 2: a layer's parameters in one tensor, of which a rank updates a part.

    flat          [ parameters of the layer, one after the other        | padding ]
    part of rank  [ rank 0          | rank 1          | rank 2          | rank 3  ]

The parameters are views of the flat tensor, a rank's part is a slice of it, and both collectives
work in place: nothing is held twice. A part begins and ends where it must for all to be of one
size, in the middle of a parameter where need be.

Source  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        SC 2020, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from workbench.checkpoints.parts import tensors
from workbench.checkpoints.rows import Rows
from workbench.common.torch_names import all_gather_single, reduce_scatter_single
from workbench.rank.bands import UNREDUCED
from workbench.rank.layers import REST, WHOLE, units
from workbench.training.fsdp.memory import ShardedMemory

if TYPE_CHECKING:
    from workbench.rank.job import Job

Named = list[tuple[str, nn.Parameter]]


@dataclass(frozen=True)
class Line:
    """The ranks between which updates are divided: this one's place, how many, and their group
    (None: of all ranks). ``added``: a group of ranks with the same part, whose gradients are added
    up too. ``aside``: the group for what is not training.
    """

    rank: int
    ranks: int
    group: dist.ProcessGroup | None = None
    added: dist.ProcessGroup | None = None
    aside: dist.ProcessGroup | None = None


class Unit:
    """The parameters that are reduced and gathered by one call each."""

    def __init__(self, name: str, parameters: Named, rank: int, ranks: int) -> None:
        """Move the parameters into one tensor, of which this rank's part is one of ``ranks``."""
        self.name, self.parameters = name, parameters
        elements = sum(one.numel() for _, one in parameters)
        share = -(-elements // ranks)
        self.flat = parameters[0][1].new_zeros(share * ranks, requires_grad=False)
        self.own = range(rank * share, (rank + 1) * share)
        self.gradient: torch.Tensor | None = None  # whole, of this rank's samples
        self.reduced = torch.empty(0)  # this rank's part of the sum over ranks
        self.views: list[tuple[nn.Parameter, int, int]] = []  # with its place in the flat tensor
        self.slices: dict[str, tuple[torch.Tensor, Rows]] = {}  # what this rank updates
        self._at: list[tuple[torch.Tensor, int, int]] = []  # those, with their place in its part
        self.missing = 0  # gradients that the backward pass under way has yet to bring
        begin = 0
        for key, parameter in parameters:
            end = begin + parameter.numel()
            self.flat[begin:end].copy_(parameter.detach().reshape(-1))
            parameter.data = self.flat[begin:end].view_as(parameter)
            self.views.append((parameter, begin, end))
            first, last = max(begin, self.own.start), min(end, self.own.stop)
            if first < last:
                rows = Rows(parameter.numel(), ((first - begin, last - begin),))
                self.slices[key] = self.flat[first:last], rows
                place = (first - self.own.start, last - self.own.start)
                self._at.append((self.slices[key][0], *place))
            begin = end

    @property
    def part(self) -> torch.Tensor:
        """Return this rank's part of the parameters."""
        return self.flat[self.own.start : self.own.stop]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all parameters, or of their gradients."""
        return self.flat.numel() * self.flat.element_size()

    @property
    def updated_bytes(self) -> int:
        """Return the bytes of the parameters that this rank updates."""
        return sum(one.numel() * one.element_size() for one, _ in self.slices.values())

    def hold_gradient(self) -> None:
        """Have the backward pass add up gradients in one tensor, which begins at zero."""
        self.gradient = (
            torch.zeros_like(self.flat) if self.gradient is None else self.gradient.zero_()
        )
        for parameter, begin, end in self.views:
            parameter.grad = self.gradient[begin:end].view_as(parameter)

    def drop_gradient(self) -> None:
        self.gradient = None
        for parameter, _, _ in self.views:
            parameter.grad = None

    def hold_reduced(self, whole: torch.Tensor | None) -> None:
        """Begin with a sum of zero; ``whole``: the tensor that it is a slice of, zero too."""
        if whole is None:
            self.reduced = torch.zeros_like(self.part)
        else:
            self.reduced = whole[self.own.start : self.own.stop]
        for slice_, begin, end in self._at:
            slice_.grad = self.reduced[begin:end]


class Zero:
    """One rank's part of the task's model, its gradients and its optimizer's state.

    At level 1 a rank keeps its whole gradient until the last microbatch is done, and reduces once.
    At level 2 it reduces a layer as soon as a backward pass has its gradient, drops what belongs to
    others, and adds up its own part over microbatches. One layer is reduced while the next one's
    gradient comes into being; before a third begins, the first has been reduced. Where other ranks
    have the same part (``Line.added``), their sums are added up after the last microbatch, while
    backward goes on.
    """

    def __init__(
        self,
        job: Job,
        level: int,
        model: nn.Module,
        layers: Iterable[tuple[str, Named]],
        line: Line | None = None,
    ) -> None:
        """Divide the gradients (level 2 only) and the updates of ``model`` between the ranks of a
        line; None: between all. ``layers``: parameters that are reduced at once, with a name.
        """
        self.job, self.level, self.model = job, level, model
        self.line = line or Line(job.rank, job.ranks, aside=job.metrics_group())
        self.units = [
            Unit(name, parameters, self.line.rank, self.line.ranks) for name, parameters in layers
        ]
        self._next = -1  # the unit that is reduced next, the last one first
        self._reducing: tuple[Unit, Any] | None = None
        self._adding: list[Any] = []  # sums over ``line.added`` that are under way
        self._begun = False
        self._last = True  # is this the iteration's last backward pass?
        memory = job.memory
        if memory is not None and not isinstance(memory, ShardedMemory):
            limit = job.exp.memory_limit_bytes
            memory = job.memory = ShardedMemory(job.run_rank, limit, job.recorder)
        self.memory: ShardedMemory | None = memory
        if memory is not None:
            memory.whole_bytes += sum(unit.nbytes for unit in self.units)
        self.parts = tensors(self._kept)  # of a checkpoint
        self.slices = {name: one for unit in self.units for name, (one, _) in unit.slices.items()}
        if memory is not None:
            memory.follow(self.model)
        for unit in self.units:
            for _, parameter in unit.parameters:
                held: Any = parameter  # torch has no types for these two
                held.register_hook(self._before(unit))
                held.register_post_accumulate_grad_hook(self._after(unit))

    def _kept(self) -> Mapping[str, tuple[torch.Tensor, Rows | None]]:
        """Return what a checkpoint has of this rank: its parts, and what no optimizer updates."""
        trained = {id(one) for unit in self.units for _, one in unit.parameters}
        rest = {
            name: (value, None)
            for name, value in self.model.state_dict(keep_vars=True).items()
            if id(value) not in trained
        }
        parts = {name: one for unit in self.units for name, one in unit.slices.items()}
        return {**rest, **parts}

    # -- one iteration --

    def begin(self) -> None:
        """Begin an iteration: all gradients are zero."""
        job, memory = self.job, self.memory
        if not self._begun and memory is not None:
            memory.ours(unit.flat.untyped_storage().data_ptr() for unit in self.units)
        if not self._begun and (job.checkpoints.resumed or job.team.state == "memory"):
            self.gather(self.line.aside)  # each rank has put back its own part only
        self._begun = True
        for unit in self.units:
            if self.level == 1:
                if unit.gradient is None:
                    self._count(unit, unit.nbytes - unit.updated_bytes)
                unit.hold_gradient()
            unit.hold_reduced(unit.gradient)

    @property
    def _sends(self) -> bool:
        """Return whether this backward pass reduces."""
        return self._last or self.level > 1

    def expect(self, *, last: bool) -> None:
        """Prepare for a backward pass, the ``last`` of the iteration or not."""
        self._next, self._last = len(self.units) - 1, last
        for unit in self.units:
            unit.missing = len(unit.parameters)

    def reduce(self) -> None:
        """Reduce what the backward pass has not: layers with a parameter that it did not use."""
        if self._sends:
            for unit in self.units:
                unit.missing = 0
            self._launch()
            self._finish()
            for work in self._adding:
                work.wait()
            self._adding = []

    def gather(self, group: dist.ProcessGroup | None = None) -> None:
        """Send this rank's part of the parameters to the others, and receive theirs."""
        works = []
        for unit in self.units if self.line.ranks > 1 else ():
            with self.job.label(unit.name):
                within = group or self.line.group
                works.append(all_gather_single(unit.flat, unit.part, within, async_op=True))
        for work in works:
            work.wait()

    # -- within a backward pass --

    def _before(self, unit: Unit) -> Any:
        def hook(_: torch.Tensor) -> None:
            if unit.gradient is None:
                self._hold(unit)

        return hook

    def _after(self, unit: Unit) -> Any:
        def hook(_: torch.Tensor) -> None:
            unit.missing -= 1
            if self._sends and not unit.missing:
                self._launch()

        return hook

    def _hold(self, unit: Unit) -> None:
        unit.hold_gradient()
        self._count(unit, unit.nbytes)

    def _launch(self) -> None:
        """Reduce the units whose gradients are there: in one order on all ranks."""
        while self._next >= 0 and not self.units[self._next].missing:
            unit = self.units[self._next]
            self._next -= 1
            if unit.gradient is None:
                self._hold(unit)
            self._finish()
            assert unit.gradient is not None
            part, work = unit.gradient[unit.own.start : unit.own.stop], None
            if self.line.ranks > 1:
                with self.job.label(unit.name):
                    group = self.line.group
                    work = reduce_scatter_single(part, unit.gradient, group=group, async_op=True)
            self._reducing = unit, work
            if work is None:
                self._finish()

    def _finish(self) -> None:
        """Wait for the unit that is being reduced."""
        if self._reducing is None:
            return
        (unit, work), self._reducing = self._reducing, None
        if work is not None:
            work.wait()
        if self.level > 1:
            assert unit.gradient is not None
            unit.reduced += unit.gradient[unit.own.start : unit.own.stop]
            unit.drop_gradient()
            self._count(unit, -unit.nbytes)
        if self._last and self.line.added is not None:
            with self.job.label(unit.name):
                added = self.line.added
                self._adding.append(dist.all_reduce(unit.reduced, group=added, async_op=True))

    def _count(self, unit: Unit, nbytes: int) -> None:
        """Count so many bytes of a unit's gradients that are not reduced yet."""
        if self.memory is not None:
            self.memory.change(UNREDUCED, nbytes, unit.name)


def by_layer(model: nn.Module, by: str) -> Iterator[tuple[str, Named]]:
    """Yield the names of units and their parameters that are trained, in the model's order."""
    return grouped(model, [name for name, _ in units(model, by)])


def grouped(model: nn.Module, layers: Sequence[str]) -> Iterator[tuple[str, Named]]:
    """Yield layers by name, with their parameters that are trained, and what is in none of them."""
    of: dict[str, Named] = {}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            layer = next((one for one in layers if key.startswith(f"{one}.")), "")
            of.setdefault(layer or (REST if layers else WHOLE), []).append((key, parameter))
    yield from of.items()
