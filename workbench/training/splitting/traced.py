"""A model as a line of layers: traced with torch.fx, in the order in which they run.

    x --> blocks.0.norm --> blocks.0.attention --> blocks.0.add --> blocks.1.norm --> ... --> head
     \\____________________________________________/^      (a skip connection crosses boundaries)

A layer is a leaf module, or a function that computes, with what costs next to nothing after it:
reshapes, indexing, sizes. The boundary after layer i is where a pipeline may be cut; what crosses
it is every value that was made before it and is used after it. Only tensors can cross: where a size
(an int) or a tuple would have to, the boundary is refused and says so.

A module whose own code cannot be traced becomes one layer (``Traced.whole`` says why); only where
that is the model itself is there nothing to cut.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import fx, nn

from workbench.common.errors import SpecError
from workbench.training.splitting.layers import (
    TUPLES,
    Layer,
    function_name,
    in_place,
    layers_of,
    number_nodes,
)
from workbench.training.splitting.tracer import Tracer


@dataclass(frozen=True)
class Traced:
    """A model and its layers. ``model`` is the caller's own object, not a copy."""

    model: nn.Module
    graph: fx.Graph
    layers: tuple[Layer, ...]
    inputs: tuple[str, ...]  # the nodes of the model's positional arguments
    whole: Mapping[str, str] = field(default_factory=dict)  # module -> why it stays one layer

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers)

    @cached_property
    def nodes(self) -> dict[str, fx.Node]:
        return {node.name: node for node in self.graph.nodes}

    @cached_property
    def layer_of(self) -> dict[str, int]:
        """Node -> its layer. Inputs are before all (-1), the output is in the last one.

        Constants, read with get_attr, have no place: each stage that uses one reads its own.
        """
        places = {name: i for i, layer in enumerate(self.layers) for name in layer.nodes}
        places |= dict.fromkeys(self.inputs, -1)
        places["output"] = len(self.layers) - 1
        return {node.name: places[node.name] for node in self.graph.nodes if node.name in places}

    @cached_property
    def last_use(self) -> dict[str, int]:
        """Node -> the last layer that uses it."""
        places = self.layer_of
        return {
            node.name: max(
                (places[user.name] for user in node.users if user.name in places),
                default=places[node.name],
            )
            for node in self.graph.nodes
            if node.name in places
        }

    def crossing(self, boundary: int) -> tuple[str, ...]:
        """Return the names of the values that cross the boundary after layer ``boundary``, in order
        of creation.
        """
        return tuple(
            name for name, place in self.layer_of.items() if place <= boundary < self.last_use[name]
        )

    def refusal(self, boundary: int, kinds: Mapping[str, str] | None = None) -> str | None:
        """Return why the model cannot be cut after layer ``boundary``; None where it can.

        ``kinds``: the observed kind of each value ("tensor", "int", "tuple", ...). Without it, the
        kinds that the graph alone implies.
        """
        crossing = self.crossing(boundary)
        where = f"between {self.layers[boundary].name!r} and {self.layers[boundary + 1].name!r}"
        if not crossing:
            return f"{where} nothing passes: what follows does not depend on what is before it"
        for name in crossing:
            kind = (kinds or {}).get(name) or self.kinds.get(name, "tensor")
            if kind != "tensor":
                return (
                    f"{where} the value {name!r} would have to pass, and that is a {kind}: only "
                    f"tensors pass from stage to stage. Cut elsewhere, or compute it again behind "
                    "the cut"
                )
            later = [w for w in self.writers.get(name, ()) if self.layer_of[w] > boundary]
            if later:
                return (
                    f"{where} the value {name!r} would have to pass, and "
                    f"{self.names[self.layer_of[later[0]]]!r} then changes it in place: what "
                    "was received must stay as it was. Use the form that is not in place"
                )
        for parameter, users in self.users.items():
            if len({place <= boundary for place in users}) == 2:
                names = " and ".join(repr(self.layers[i].name) for i in (users[0], users[-1]))
                return (
                    f"{where} the parameter {parameter!r} would be on both sides: {names} share "
                    "it. Give each its own, or keep them in one stage"
                )
        return None

    def refusals(self, kinds: Mapping[str, str] | None = None) -> tuple[str | None, ...]:
        """Return refusal() of every boundary."""
        return tuple(self.refusal(i, kinds) for i in range(len(self.layers) - 1))

    @cached_property
    def users(self) -> dict[str, tuple[int, ...]]:
        """Parameter -> the layers that use it; a tied one under the first of its names."""
        named = dict(self.model.named_parameters(remove_duplicate=False))
        first: dict[int, str] = {}
        users: dict[str, list[int]] = {}
        for i, layer in enumerate(self.layers):
            for name in layer.parameters:
                key = first.setdefault(id(named[name]), name)
                users.setdefault(key, []).append(i)
        return {name: tuple(where) for name, where in users.items()}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kinds of values that the graph alone shows not to be tensors: "number", "tuple"."""
        numbers = {node.name: "number" for node in number_nodes(self.graph)}
        tuples = {
            node.name: "tuple"
            for node in self.graph.nodes
            if node.op != "call_module" and function_name(node) in TUPLES
        }
        return numbers | tuples

    @cached_property
    def writers(self) -> dict[str, tuple[str, ...]]:
        """Value -> the nodes that change it in place."""
        writers: dict[str, tuple[str, ...]] = {}
        for node in self.graph.nodes:
            if in_place(node, self.model) and node.all_input_nodes:
                changed = node.all_input_nodes[0].name
                writers[changed] = (*writers.get(changed, ()), node.name)
        return writers


def trace(model: nn.Module, inputs: int | None = None) -> Traced:
    """Trace ``model`` into its layers, in the order in which they run.

    ``inputs``: the number of positional arguments of a call; by default, those without a default.
    Raises SpecError where the model's own forward cannot be traced.
    """
    names = _arguments(model, inputs)
    whole: dict[str, str] = {}
    while True:
        tracer = Tracer(names, whole)
        try:
            with torch.no_grad():  # no parameter is in use yet: an audit looks
                graph = tracer.trace(model)
            break
        except Exception as error:
            if tracer.failed is None:
                raise SpecError(
                    f"the model {type(model).__name__} cannot be traced, so it cannot be split: "
                    f"{type(error).__name__}: {error}. Its forward must not branch or loop on the "
                    "values or sizes of its input; move such code into a module of its own, which "
                    "then stays one layer"
                ) from error
            whole[tracer.failed] = f"{type(error).__name__}: {error}"
    placeholders = tuple(node.name for node in graph.find_nodes(op="placeholder"))
    return Traced(model, graph, layers_of(model, graph), placeholders, whole)


def _arguments(model: nn.Module, inputs: int | None) -> tuple[str, ...]:
    """Return the names of the model's positional arguments: ``inputs``, or the required ones."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range((inputs or 0) - len(names))]
        elif parameter.kind is parameter.KEYWORD_ONLY or parameter.kind is parameter.VAR_KEYWORD:
            continue
        elif inputs is not None or parameter.default is parameter.empty:
            names.append(parameter.name)
    names = names[:inputs]
    if not names or (inputs is not None and len(names) < inputs):
        raise SpecError(
            f"the model {type(model).__name__} is called with {inputs or 0} positional arguments; "
            f"its forward takes {', '.join(names) or 'none'}"
        )
    return tuple(names)
