"""The plan of a model's split over ranks before anything runs: data, and its words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import fx

from workbench.common.units import counted
from workbench.training.splitting.traced import Traced
from workbench.training.tensor_parallel.cut import Split

DIM = {"column": 0, "row": 1}  # of the weight

Argument = tuple[fx.Node, tuple[int, ...], Split]  # an argument of a node (a path into its args)
Copied = tuple[fx.Node, tuple[fx.Node, ...], str]  # a value, the nodes that use it, and a name


@dataclass(frozen=True)
class Layer:
    """A layer's split. ``how``: "column", "row" or "whole", and ``why`` it is whole."""

    name: str
    op: str
    how: str
    why: str = ""
    cut: Split | None = None  # of its output (column) or input (row)
    gathered: bool = False  # the output is put together again


@dataclass(frozen=True)
class Plan:
    """A model's split over ``ranks`` ranks."""

    ranks: int
    traced: Traced
    layers: tuple[Layer, ...]  # those with parameters, in order of execution
    copies: tuple[Copied, ...]  # whole values whose gradient each rank knows a summand of
    sizes: tuple[Argument, ...]  # that become a rank's own size
    apart: frozenset[fx.Node]  # values of which each rank has some channels

    @property
    def split(self) -> dict[str, Split]:
        """The cut of each split parameter, by its name; the others are whole."""
        result: dict[str, Split] = {}
        for one in self.layers:
            if one.cut is not None:
                cut = replace(one.cut, dim=DIM[one.how])
                result |= {f"{one.name}.{p}": cut for p in ("weight", "bias")[: 2 - cut.dim]}
        return result

    def __str__(self) -> str:
        width = max(len(one.name) for one in self.layers) + 2
        lines = (f"  {one.name:{width}}{one.op:16}{self.words(one)}" for one in self.layers)
        return "\n".join([f"split over {counted(self.ranks, 'rank')}", *lines])

    def words(self, layer: Layer) -> str:
        """Describe how a layer is split."""
        if layer.cut is None:
            return f"whole on every rank: {layer.why}"
        sizes = [layer.cut.local(rank, self.ranks) for rank in range(self.ranks)]
        each = f"{sizes[0]} each" if len({*sizes}) == 1 else ", ".join(map(str, sizes))
        what = f"{layer.how}: {layer.cut.size} {'inputs' if layer.how == 'row' else 'outputs'}"
        return f"{what}, {each}" + (", then gathered" if layer.gathered else "")
