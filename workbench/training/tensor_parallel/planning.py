"""Tensor parallelism: which layers of a model are split over ranks, and how.

A linear or convolutional layer whose input is whole is cut by its outputs ("column"). Where these
reach other such layers through nothing but operations that leave channels apart, those are cut by
their inputs ("row") and nothing is exchanged in between; otherwise the outputs are gathered.
Attention is this very case: the layer of queries, keys and values is cut by heads, the projection
takes the heads that the rank has.

    x ─ copy ─ column ─ tanh ─ row ─ add ─ y          a rank has 1/p of both weights

Whole on every rank are a layer with fewer outputs than ranks, one whose weight another one shares,
and all others (embeddings, norms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from workbench.common.errors import SpecError
from workbench.training.splitting.traced import Traced, trace
from workbench.training.tensor_parallel.cut import AlsoSplit, Mixes, Other, Passage, Split, shape
from workbench.training.tensor_parallel.plan import Argument, Copied, Layer, Plan
from workbench.training.tensor_parallel.rules import follow
from workbench.training.tensor_parallel.splittable import is_layer, refuse, unfit

TRIES = 50  # of other cuts for one layer, before it counts as one that cannot be followed


def plan(model: nn.Module, args: tuple[Any, ...], ranks: int, *, equally: bool = False) -> Plan:
    """Plan how ``model``, called with ``args``, is split. ``equally``: all parts are of one size.

    Raises SpecError if it cannot be traced, or if no layer can be split over this number of ranks.
    """
    traced = trace(model, len(args))
    refuse(traced)
    _observe(traced, args)
    result = _Planner(traced, ranks, equally).plan()
    if ranks > 1 and not result.split:
        why = f"tensor parallelism finds no layer of the model that can be {result}"
        raise SpecError.at("ranks", why, ranks).within("Experiment")
    return result


def arguments(task: Any, model: nn.Module, batch: Any) -> tuple[Any, ...]:
    """Return the arguments with which the task's loss calls its model."""
    calls: list[tuple[Any, ...]] = []

    class Seen(Exception):
        pass

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if kwargs:
            raise SpecError(
                f"tensor parallelism: the task's loss calls its model with keywords "
                f"({', '.join(kwargs)}): pass its inputs by position"
            )
        calls.append(args)
        raise Seen

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        task.loss(model, batch)
    except Seen:
        return calls[0]
    finally:
        hook.remove()
    raise SpecError(
        "tensor parallelism splits what model(...) computes, and the task's loss does not call its "
        "model"
    )


class _Planner:
    def __init__(self, traced: Traced, ranks: int, equally: bool) -> None:
        self.traced, self.graph, self.ranks = traced, traced.graph, ranks
        self.equally = equally
        self.modules: dict[str, Any] = dict(traced.model.named_modules())
        self.unfit = dict(unfit(traced))
        self.layers: dict[str, Layer] = {}
        self.copies: list[Copied] = []
        self.sizes: list[Argument] = []
        self.apart: set[fx.Node] = set()

    def plan(self) -> Plan:
        for node in self.graph.nodes:
            name = str(node.target)
            if not self._weighs(node) or name in self.layers:
                continue
            if name in self.unfit:
                self._note(node, "whole", why=self.unfit[name])
            elif not self._pair(node):
                cut = self._outputs(node, 1, 1)
                if not self._fits(cut):
                    self._note(node, "whole", why=f"{cut.units} outputs for {self.ranks} ranks")
                else:
                    self._note(node, "column", cut=cut, gathered=True)
                    self._copy([node])
        layers: dict[str, Layer] = {}
        for one in self.traced.layers:
            name = one.name.partition(":")[0]  # called once more, it is the same
            if one.parameters and name not in layers:
                whole = Layer(name, one.op, "whole", self._why(name))
                layers[name] = self.layers.get(name, whole)
        return Plan(
            self.ranks,
            self.traced,
            tuple(layers.values()),
            tuple(self.copies),
            tuple(self.sizes),
            frozenset(self.apart),
        )

    def _fits(self, cut: Split) -> bool:
        """Return whether each rank gets a part; with ``equally`` of one size."""
        return cut.units >= self.ranks and not (self.equally and cut.units % self.ranks)

    def _why(self, name: str) -> str:
        untraced = self.traced.whole.get(name)
        return f"cannot be traced: {untraced}" if untraced else "neither linear nor convolutional"

    def _weighs(self, node: fx.Node) -> bool:
        """Return whether the node calls a layer that may be split."""
        return node.op == "call_module" and is_layer(self.modules[str(node.target)])

    def _note(self, node: fx.Node, how: str, **more: Any) -> None:
        name = str(node.target)
        self.layers[name] = Layer(name, type(self.modules[name]).__name__, how, **more)

    def _outputs(self, node: fx.Node, blocks: int, unit: int) -> Split:
        """Return the layer's output, cut by channels. Raises Mixes where that is uneven."""
        weight = self.modules[str(node.target)].weight
        channels = weight.shape[0]
        if channels % (blocks * unit):
            raise Mixes(str(node.target))
        dim = len(shape(node)) - 1 - (weight.dim() - 2)
        return Split(dim, blocks, channels // (blocks * unit), unit, str(node.target))

    def _pair(self, node: fx.Node) -> bool:
        """Cut this layer by outputs, and all that they reach by inputs; return False where
        impossible.
        """
        sources = {node: (1, 1)}  # the layers that are cut by outputs: blocks, channels a unit
        for _ in range(TRIES):
            try:
                way, rows = self._reach(sources)
            except Other as other:
                one = next(one for one in sources if one.target == other.source)
                blocks, unit = sources[one]
                sources[one] = blocks * other.blocks, unit * other.unit or 1
            except AlsoSplit as also:
                source = self._source(also.node)
                if source is None or source in sources:
                    return False
                sources[source] = (1, 1)
            except Mixes:
                return False
            else:
                self._settle(sources, way, rows)
                return True
        return False

    def _source(self, node: fx.Node) -> fx.Node | None:
        """Return the layer that made this value, if it may be cut too."""
        while not self._weighs(node):
            tensors = [one for one in node.all_input_nodes if "shape" in one.meta]
            before = node.args[0] if len(tensors) != 1 and node.args else next(iter(tensors), None)
            if not isinstance(before, fx.Node):
                return None
            node = before
        return None if str(node.target) in {*self.layers, *self.unfit} else node

    def _reach(
        self, sources: Mapping[fx.Node, tuple[int, int]]
    ) -> tuple[Passage, dict[fx.Node, Split]]:
        """Follow the outputs of ``sources`` to the layers that take them apart again."""
        way = Passage()
        rows: dict[fx.Node, Split] = {}
        for node in self.graph.nodes:
            reached = [one for one in node.all_input_nodes if one in way.cuts]
            if node in sources:
                cut = self._outputs(node, *sources[node])
                if reached or not self._fits(cut):
                    raise Mixes(str(node.target))
                way.cuts[node] = cut
            elif reached and self._weighs(node):
                rows[node] = self._input_split(node, reached[0], way)
            elif reached:
                module = self.modules[str(node.target)] if node.op == "call_module" else None
                if (result := follow(node, way, module)) is not None:
                    way.cuts[node] = result
        if not rows:
            raise Mixes("no layer takes it")
        return way, rows

    def _input_split(self, node: fx.Node, value: fx.Node, way: Passage) -> Split:
        """Return how the input of this layer is cut, which must be by channels."""
        name, cut = str(node.target), way.cuts[value]
        dim = len(shape(node)) - 1 - (self.modules[name].weight.dim() - 2)
        if name in self.layers or name in self.unfit or not isinstance(cut, Split):
            raise Mixes(name)
        if cut.dim != dim:
            raise Mixes(name)
        return cut

    def _settle(
        self,
        sources: Mapping[fx.Node, tuple[int, int]],
        way: Passage,
        rows: Mapping[fx.Node, Split],
    ) -> None:
        for node, (blocks, unit) in sources.items():
            self._note(node, "column", cut=self._outputs(node, blocks, unit))
        for node, cut in rows.items():
            self._note(node, "row", cut=cut)
        by_input: dict[fx.Node, list[fx.Node]] = {}
        for node in sources:
            by_input.setdefault(node.all_input_nodes[0], []).append(node)
        for users in by_input.values():
            self._copy(users)
        self.copies += ((operand, (user,), operand.name) for user, operand in way.whole)
        self.sizes += way.sizes
        self.apart |= way.cuts.keys()

    def _copy(self, users: list[fx.Node]) -> None:
        """Add a copy of the whole input of column layers, if a gradient flows back through it."""
        value = users[0].all_input_nodes[0]
        if value.meta["grad"]:
            name = _together([str(one.target) for one in users])
            self.copies.append((value, tuple(users), name))


def _together(names: list[str]) -> str:
    """Join names with a common prefix: "attention.query, key, value"."""
    stem = names[0].rpartition(".")[0]
    alike = stem and all(name.rpartition(".")[0] == stem for name in names)
    rest = [name.removeprefix(f"{stem}.") if alike else name for name in names[1:]]
    return ", ".join([names[0], *rest])


class _Observer(fx.Interpreter):
    """Notes each value's shape, bytes, and whether a gradient flows back through it."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            n.meta["shape"], n.meta["bytes"] = tuple(value.shape), value.nbytes
            n.meta["grad"] = value.requires_grad
        return value


def _observe(traced: Traced, args: tuple[Any, ...]) -> None:
    modes = [(module, module.training) for module in traced.model.modules()]
    traced.model.eval()  # running means stay as they are
    try:
        with torch.enable_grad():
            _Observer(fx.GraphModule(traced.model, traced.graph)).run(*args)
    finally:
        for module, mode in modes:
            module.training = mode
