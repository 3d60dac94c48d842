"""Groups the nodes of a traced model into named layers.

A layer begins at a node that computes: a leaf module or a function. Nodes that cost almost nothing
belong to the layer before: reshapes, indexing, changes in place. Sizes, and values derived from
sizes and constants alone, belong to the layer that uses them first.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx, nn

from workbench.common.errors import SpecError

# What makes no layer of its own: no arithmetic on tensors' elements, or next to none.
_CHEAP = set(
    "getattr getitem view view_as reshape flatten unflatten transpose t permute movedim swapaxes "
    "contiguous squeeze unsqueeze expand expand_as broadcast_to narrow select chunk split unbind "
    "detach to float long type type_as arange zeros ones full empty eye linspace".split()
)
_NUMBERS = {"size", "dim", "numel", "stride", "ndim", "shape", "dtype", "device", "is_cuda"}
TUPLES = {"chunk", "split", "unbind", "tensor_split", "meshgrid", "topk", "sort"}
_ARITHMETIC = {
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.truediv,
    operator.mod,
    operator.neg,
    operator.pow,
    operator.getitem,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    min,
    max,
    int,
    float,
}


@dataclass(frozen=True)
class Layer:
    """One step of the model: ``nodes`` of the graph that always stay on one rank."""

    name: str  # a module's path, or the path of the module whose code calls a function + its name
    op: str  # the module's class, or the function's name
    nodes: tuple[str, ...]
    parameters: tuple[str, ...]  # their names in the model


def layers_of(model: nn.Module, graph: fx.Graph) -> tuple[Layer, ...]:
    """Group the nodes of the graph into layers; each begins at a node that computes."""
    sizes = _placeless(graph, model)
    groups: list[list[fx.Node]] = []
    leading: list[fx.Node] = []  # cheap ones before the first that computes: they belong to it
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or node in sizes:
            continue
        if not _stays(node, model):
            groups.append([*leading, node])
            leading = []
        else:
            (groups[-1] if groups else leading).append(node)
    if leading:
        groups.append(leading)
    if not groups:
        raise SpecError(f"the model {type(model).__name__} computes nothing: there is no layer")
    # A layer is named after its first node that computes.
    computing = [next((n for n in group if not _stays(n, model)), group[0]) for group in groups]
    groups = _with_sizes(graph, groups, sizes)
    return tuple(
        Layer(
            name,
            _op(node, model),
            tuple(n.name for n in group),
            tuple(dict.fromkeys(p for n in group for p in _parameters(n, model))),
        )
        for name, node, group in zip(_unique(computing), computing, groups, strict=True)
    )


def _with_sizes(
    graph: fx.Graph, groups: list[list[fx.Node]], sizes: set[fx.Node]
) -> list[list[fx.Node]]:
    """Add each size to the group that uses it first; leave out unused sizes.

    So ``b, t = x.shape`` at the start of a block does not tie the block to the one before it.
    """
    place = {node: i for i, group in enumerate(groups) for node in group}
    for node in reversed(graph.nodes):
        if node in sizes:
            used = [len(groups) - 1 if u.op == "output" else place.get(u) for u in node.users]
            first = min((i for i in used if i is not None), default=None)
            if first is not None:
                place[node] = first
    whole: list[list[fx.Node]] = [[] for _ in groups]
    for node in graph.nodes:
        if node in place:
            whole[place[node]].append(node)
    return whole


def number_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that are sizes, or derived from sizes alone: x.shape, x.size(1) // 2."""
    sizes: set[fx.Node] = set()
    for node in graph.nodes:
        name = function_name(node)
        attribute = name == "getattr" and node.args[1] in _NUMBERS
        method = node.op == "call_method" and name in _NUMBERS
        inputs = node.all_input_nodes
        known = node.target in _ARITHMETIC or getattr(node.target, "__module__", "") == "math"
        arithmetic = node.op == "call_function" and known
        if attribute or method or (arithmetic and inputs and sizes.issuperset(inputs)):
            sizes.add(node)
    return sizes


def _placeless(graph: fx.Graph, model: nn.Module) -> set[fx.Node]:
    """Return sizes, and nodes derived from sizes and constants alone, such as positions[:t]."""
    result = number_nodes(graph)
    for node in graph.nodes:
        inputs = [a for a in node.all_input_nodes if a.op != "get_attr"]
        cheap = node.op != "call_module" and _stays(node, model) and not in_place(node, model)
        if cheap and node.all_input_nodes and result.issuperset(inputs):
            result.add(node)
    return result


def _stays(node: fx.Node, model: nn.Module) -> bool:
    """Return whether the node belongs to the layer before it."""
    if node.op == "call_module":
        return in_place(node, model)
    return function_name(node) in _CHEAP or in_place(node, model)


def in_place(node: fx.Node, model: nn.Module) -> bool:
    """Return whether the node changes its input in place."""
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    name = function_name(node)
    written = name.endswith("_") and not name.endswith("__")
    return written or node.kwargs.get("inplace") is True or name in _IN_PLACE


_IN_PLACE = {"iadd", "isub", "imul", "itruediv", "setitem"}


def function_name(node: fx.Node) -> str:
    """Return the plain name of the node's function: "linear", "view", "add"; a module's path."""
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target)).removeprefix("_operator.")
    return str(node.target)


def _op(node: fx.Node, model: nn.Module) -> str:
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))).__name__
    return function_name(node)


def _name(node: fx.Node) -> str:
    """Return the module's path; for a function, its name after the path of the calling module."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack") or {}
    owner = next(reversed(stack.values()))[0] if stack else ""
    return f"{owner}.{function_name(node)}" if owner else function_name(node)


def _unique(nodes: list[fx.Node]) -> Iterator[str]:
    """Yield names of layers; repeated names get ":2", ":3", ..."""
    counts: dict[str, int] = {}
    for name in map(_name, nodes):
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}:{counts[name]}"


def _parameters(node: fx.Node, model: nn.Module) -> Iterator[str]:
    """Yield the names of the node's parameters: its module's, or those read with get_attr."""
    if node.op == "call_module":
        path = str(node.target)
        for name, _ in model.get_submodule(path).named_parameters(remove_duplicate=False):
            yield f"{path}.{name}"
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for read in node.all_input_nodes:
        if read.op == "get_attr" and str(read.target) in parameters:
            yield str(read.target)
