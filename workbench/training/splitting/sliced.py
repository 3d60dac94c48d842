"""A stage of a split model: a module with the layers of one stage only.

    stage 0: forward(*the model's arguments) -> (values that cross cut 0)
    stage s: forward(*values that cross cut s-1) -> (values that cross cut s)
    the last: forward(*values) -> the model's own output

A value that later stages need passes through the stages between (as a view, so that its gradient
passes back the same way). Parameters and buffers keep their names of the unsplit model.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from workbench.common.errors import SpecError
from workbench.training.splitting.traced import Traced

Names = tuple[str, ...]  # of values that cross a cut

if TYPE_CHECKING:
    from workbench.training.splitting.cut import Cut


def stage_module(traced: Traced, cut: Cut, index: int) -> nn.Module:
    """Return stage ``index`` of the model, with the model's own parameters (not copies of them)."""
    first, last = cut.layers_of(index)
    stage = slice_module(traced, first, last)
    if index == cut.stages - 1:
        _adopt(stage, traced)
    return stage


def _adopt(stage: nn.Module, traced: Traced) -> None:
    """Give ``stage`` the parameters that no layer uses, so that none is lost."""
    used = {name for layer in traced.layers for name in layer.parameters}
    for name, parameter in traced.model.named_parameters(remove_duplicate=False):
        if name not in used:
            owner = stage
            *path, last = name.split(".")
            for part in path:
                if not hasattr(owner, part):
                    owner.add_module(part, nn.Module())
                owner = getattr(owner, part)
            owner.register_parameter(last, parameter)


def slice_module(traced: Traced, first: int, last: int) -> nn.Module:
    """Return layers ``first`` .. ``last`` (both included) as a module from values to values."""
    received = traced.inputs if first == 0 else traced.crossing(first - 1)
    ends = last == len(traced.layers) - 1
    return piece(traced, first, last, received, None if ends else traced.crossing(last))


def piece(
    traced: Traced, first: int, last: int, received: Names, outputs: Names | None
) -> nn.Module:
    """Return layers ``first`` .. ``last`` as a module from the values ``received`` to ``outputs``,
    by name.

    ``outputs`` None: the model's own output.
    """
    graph = fx.Graph()
    result = {name: graph.placeholder(name) for name in received}

    def read(node: fx.Node) -> fx.Node:
        if node.name not in result:  # a constant: all else was received or is made here
            assert node.op == "get_attr", f"{node.name} did not cross the cut"
            result[node.name] = graph.node_copy(node, read)
        return result[node.name]

    for layer in traced.layers[first : last + 1]:
        for name in layer.nodes:
            result[name] = graph.node_copy(traced.nodes[name], read)
    if outputs is None:
        [output] = traced.graph.find_nodes(op="output")
        graph.output(fx.map_arg(output.args[0], read))
    else:
        graph.output(tuple(_pass(graph, result, received, name) for name in outputs))
    return fx.GraphModule(traced.model, graph, f"Layers{first}To{last}")


def _pass(graph: fx.Graph, nodes: dict[str, fx.Node], received: Names, name: str) -> Any:
    """Return the stage's output for a value; a value that only passes through becomes a view."""
    node = nodes[name]
    return graph.call_method("view_as", (node, node)) if name in received else node


def hollow(traced: Traced) -> Traced:
    """Return the same layers with parameters and buffers on the device "meta", without memory.

    For shapes() after a rank has freed the model.
    """
    model, memo = traced.model, {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_like(tensor, device="meta")
        shaped = nn.Parameter(empty, tensor.requires_grad) if tensor.is_leaf else empty
        memo[id(tensor)] = shaped if isinstance(tensor, nn.Parameter) else empty
    whole = Traced(copy.deepcopy(model, memo), traced.graph, traced.layers, traced.inputs)
    return whole


def shapes(traced: Traced, cut: Cut, args: tuple[Any, ...]) -> tuple[tuple[torch.Tensor, ...], ...]:
    """Return the tensors that cross each cut, without memory, for a call of the model with
    ``args``.

    One tuple per cut (stages - 1); each tensor has the shape, dtype and requires_grad that the
    stage before gives. Runs the stages on the device "meta": only shapes are computed.
    """
    empty = hollow(traced)
    values = tuple(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args)
    crossing = []
    for stage in range(cut.stages - 1):
        module = stage_module(empty, cut, stage)
        with torch.device("meta"):
            values = module(*values)
        for name, value in zip(traced.crossing(cut.layers_of(stage)[1]), values, strict=True):
            if not isinstance(value, torch.Tensor):
                raise SpecError(
                    f"the cut after stage {stage} cannot be: the value {name!r} that crosses "
                    f"it is a {type(value).__name__}, and only tensors pass from stage to stage"
                )
        crossing.append(values)
    return tuple(crossing)
