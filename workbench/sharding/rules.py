"""How a split value passes through the operations between two split layers.

A layer that is split by its outputs leaves on every rank some of the channels (features, heads) of
its value. What follows may go on with those alone as long as no operation mixes channels of
different ranks: elementwise functions, pooling, reshapes that keep channels together, attention by
heads. ``follow`` says for one operation how its value is split then, or raises ``Mixes``.

    qkv        [3 W]         3 blocks (q, k, v) of H heads of D features: a rank has some heads of
    chunk      3 x [W]       each; every piece is split by heads alike
    view       [H, D]        the heads' own dimension is split now
    attention  [H, D]        each head by itself
    reshape    [W]           back again, for the next layer to take its rows
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from workbench.sharding.cut import (
    AlsoSplit,
    Cut,
    Mixes,
    Other,
    Passage,
    Pieces,
    Sizes,
    Split,
    shape,
    words,
)

ELEMENTWISE = {
    torch.tanh, torch.relu, torch.sigmoid, torch.exp, torch.neg, torch.abs, torch.sqrt, torch.rsqrt,
    torch.add, torch.sub, torch.mul, torch.div, torch.pow, torch.square, torch.erf, torch.where,
    torch.clamp, torch.sin, torch.cos, F.relu, F.gelu, F.silu, F.elu, F.leaky_relu, F.tanh,
    F.sigmoid, F.softplus, F.mish, F.hardtanh, F.relu6, operator.add, operator.sub, operator.mul,
    operator.truediv, operator.neg, operator.pow, operator.iadd, operator.imul,
    "tanh", "relu", "sigmoid", "exp", "neg", "abs", "sqrt", "rsqrt", "add", "sub", "mul", "div",
    "pow", "square", "erf", "clamp", "contiguous", "clone", "float", "double", "masked_fill",
    "type_as", "to", "detach",
}  # fmt: skip
ELEMENTWISE_MODULES = (
    nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Mish,
    nn.Hardtanh, nn.ReLU6, nn.Identity, nn.Tanhshrink, nn.Hardswish, nn.Hardsigmoid, nn.CELU,
    nn.SELU, nn.LogSigmoid, nn.Softsign,
)  # fmt: skip
POOLING = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
    nn.ZeroPad2d,
)  # fmt: skip
POOLING_FUNCTIONS = {
    F.avg_pool1d: 1, F.avg_pool2d: 2, F.max_pool1d: 1, F.max_pool2d: 2, F.adaptive_avg_pool2d: 2,
}  # fmt: skip


def follow(node: fx.Node, way: Passage, module: nn.Module | None) -> Cut | None:
    """How the value of ``node`` is cut, some inputs of which are; None if it is not. ``module``:
    what it calls.

    Every node has its whole value's shape in ``meta["shape"]``.
    """
    target = type(module) if module is not None else node.target
    first = way.cuts.get(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
    if isinstance(module, ELEMENTWISE_MODULES) or target in ELEMENTWISE:
        return _elementwise(node, way)
    if isinstance(module, nn.Dropout) and not module.p:
        return _elementwise(node, way)
    if isinstance(first, Sizes | Pieces):
        return _taken(node, first)
    if not isinstance(first, Split):
        if rule := _OF_SEVERAL.get(target):
            return rule(node, way)
        raise Mixes(words(node))
    if isinstance(module, POOLING) and "shape" in node.meta:
        return _pooling(node, way, spatial=int(type(module).__name__[-2]))
    if target in POOLING_FUNCTIONS:
        return _pooling(node, way, POOLING_FUNCTIONS[target])
    rule = _OF_SEVERAL.get(target) or _OF_ONE.get(target)
    if rule is None:
        raise Mixes(words(node))
    return rule(node, way)


def _dim(node: fx.Node, place: int, name: str, default: int) -> int:
    value = node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
    if not isinstance(value, int):
        raise Mixes(words(node))
    return value % max(len(shape(node.args[0])), 1)


def _input(node: fx.Node, way: Passage) -> Split:
    cut = way.cuts[node.args[0]]  # type: ignore[index]
    assert isinstance(cut, Split)
    return cut


def _elementwise(node: fx.Node, way: Passage) -> Split:
    """All operands that are cut must be cut alike; whole ones must say the same of all channels."""
    return _alike(node, way, node.all_input_nodes, len(shape(node)))


def _alike(node: fx.Node, way: Passage, operands: list[fx.Node], ndim: int) -> Split:
    found: Split | None = None
    for one in operands:
        cut = way.cuts.get(one)
        if cut is None:
            continue
        if not isinstance(cut, Split):
            raise Mixes(words(node))
        moved = replace(
            cut, dim=cut.dim + ndim - len(shape(one))
        )  # broadcasting adds dims in front
        if found is not None and not moved.same(found):
            raise Mixes(words(node))
        found = found or moved
    assert found is not None
    for one in operands:
        if one in way.cuts or "shape" not in one.meta:
            continue
        dim = found.dim - (ndim - len(shape(one)))
        if dim >= 0 and shape(one)[dim] != 1:
            raise AlsoSplit(one)
        if one.meta["grad"]:
            way.whole.append((node, one))
    return found


def _pooling(node: fx.Node, way: Passage, spatial: int) -> Split:
    """Each channel by itself, as long as channels are what is cut."""
    cut = _input(node, way)
    if cut.dim >= len(shape(node.args[0])) - spatial:
        raise Mixes(words(node))
    return cut


def _reshape(node: fx.Node, way: Passage) -> Split:
    """Any reshape: the cut dim is the first of those that become one, or is taken apart."""
    cut, before, after = _input(node, way), shape(node.args[0]), shape(node)
    run_before, run_after = _together(before, after, cut.dim, node)
    if math.prod(before[run_before.start : cut.dim]) != 1:
        raise Mixes(words(node))
    inner = math.prod(before[cut.dim + 1 : run_before.stop])
    cut = replace(cut, unit=cut.unit * inner)
    dims = [dim for dim in run_after if after[dim] != 1] or [run_after.start]
    blocks, dim = cut.blocks, dims[0]
    if blocks > 1 and after[dim] == blocks and len(dims) > 1:
        blocks, dim = 1, dims[1]
    rest = math.prod(after[dim + 1 : run_after.stop])
    if blocks > 1 and rest != 1:
        raise Mixes(words(node))
    if cut.unit % rest:
        raise Other(cut.source, unit=math.lcm(cut.unit, rest) // cut.unit)
    found = Split(dim, blocks, cut.units, cut.unit // rest, cut.source)
    _own_size(node, way, found)
    return found


def _together(
    before: tuple[int, ...], after: tuple[int, ...], dim: int, node: fx.Node
) -> tuple[range, range]:
    """The dims that a reshape takes together, ``dim`` of ``before`` among them, and their
    counterpart.
    """
    i = j = 0
    while i < len(before):
        start_i, start_j = i, j
        left, right = before[i], after[j] if j < len(after) else 1
        i, j = i + 1, j + 1
        while left != right and (i < len(before) or j < len(after)):
            if left < right and i < len(before):
                left, i = left * before[i], i + 1
            elif j < len(after):
                right, j = right * after[j], j + 1
            else:
                break
        while i == len(before) and j < len(after):
            j += 1  # dims of size 1 at the end
        if start_i <= dim < i:
            return range(start_i, i), range(start_j, min(j, len(after)))
    raise Mixes(words(node))


def _own_size(node: fx.Node, way: Passage, cut: Split) -> None:
    """Where the new sizes are written as arguments, that of the cut dim becomes the rank's own."""
    if node.target in ("flatten", torch.flatten) or node.op == "call_module":
        return
    if node.target in ("unflatten", torch.unflatten):
        path: tuple[int, ...] = (2, cut.dim - (_dim(node, 1, "dim", 0)))
    elif len(node.args) > 1 and isinstance(node.args[1], tuple | list):
        path = (1, cut.dim)
    else:
        path = (1 + cut.dim,)
    written: Any = node.args
    for step in path:
        if not isinstance(written, tuple | list) or not 0 <= step < len(written):
            raise Mixes(words(node))
        written = written[step]
    if isinstance(written, fx.Node) and "shape" in written.meta:
        raise Mixes(words(node))  # sizes as one value: view(other.shape)
    if written != -1:
        way.sizes.append((node, path, cut))


def _transpose(node: fx.Node, way: Passage) -> Split:
    cut = _input(node, way)
    a, b = _dim(node, 1, "dim0", 0), _dim(node, 2, "dim1", 1)
    return replace(cut, dim={a: b, b: a}.get(cut.dim, cut.dim))


def _permute(node: fx.Node, way: Passage) -> Split:
    cut = _input(node, way)
    order: Any = node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
    return replace(cut, dim=[dim % len(order) for dim in order].index(cut.dim))


def _chunk(node: fx.Node, way: Passage) -> Pieces:
    cut, parts = _input(node, way), node.args[1] if len(node.args) > 1 else None
    if _dim(node, 2, "dim", 0) != cut.dim:
        return Pieces(cut)
    if not isinstance(parts, int) or cut.size % parts:
        raise Mixes(words(node))
    return Pieces(_of_blocks(cut, parts))


def _split(node: fx.Node, way: Passage) -> Pieces:
    cut, each = _input(node, way), node.args[1] if len(node.args) > 1 else None
    if _dim(node, 2, "dim", 0) != cut.dim:
        return Pieces(cut)
    listed = isinstance(each, tuple | list)
    one = each[0] if isinstance(each, tuple | list) and len({*each}) == 1 else each
    if not isinstance(one, int) or cut.size % one:
        raise Mixes(words(node))
    piece = _of_blocks(cut, cut.size // one)
    paths = [(1, i) for i in range(cut.size // one)] if listed else [(1,)]
    way.sizes += ((node, path, piece) for path in paths)
    return Pieces(piece)


def _of_blocks(cut: Split, parts: int) -> Split:
    if cut.blocks % parts:
        raise Other(cut.source, blocks=math.lcm(cut.blocks, parts) // cut.blocks)
    return replace(cut, blocks=cut.blocks // parts)


def _unbind(node: fx.Node, way: Passage) -> Pieces:
    cut, dim = _input(node, way), _dim(node, 1, "dim", 0)
    if dim == cut.dim:
        raise Other(cut.source, blocks=shape(node.args[0])[dim], unit=0)
    return Pieces(replace(cut, dim=cut.dim - (dim < cut.dim)))


def _taken(node: fx.Node, cut: Sizes | Pieces) -> Cut | None:
    """A piece of a tuple; or a number of a shape, which is the same on every rank or is not."""
    at = node.args[1] if node.target is operator.getitem else None
    if isinstance(cut, Pieces) and isinstance(at, int):
        return cut.each
    if isinstance(cut, Sizes) and isinstance(at, int) and at % cut.dims != cut.of.dim:
        return None
    if isinstance(cut, Sizes) and isinstance(at, int) and not node.users:
        return None
    raise Mixes(words(node))


def _getitem(node: fx.Node, way: Passage) -> Split:
    """``x[i]``, ``x[:, -1]``: as long as the cut dim is taken whole."""
    cut = _input(node, way)
    index = node.args[1] if isinstance(node.args[1], tuple | list) else (node.args[1],)
    dim, given = 0, len(shape(node.args[0]))
    left = 0  # dims before the cut one that remain
    for one in index:
        if one is Ellipsis:
            dim += given - sum(1 for other in index if other not in (None, Ellipsis)) - dim
        elif one is None:
            left += dim <= cut.dim
        elif dim == cut.dim:
            if isinstance(one, int):
                raise Other(cut.source, blocks=shape(node.args[0])[dim], unit=0)
            if one != slice(None):
                raise Mixes(words(node))
            dim += 1
        elif isinstance(one, int):
            left -= dim < cut.dim
            dim += 1
        elif isinstance(one, slice):
            dim += 1
        else:
            raise Mixes(words(node))
    return replace(cut, dim=cut.dim + left)


def _size(node: fx.Node, way: Passage) -> Sizes | None:
    """``x.shape``, ``x.size()``, ``x.size(0)``."""
    cut = _input(node, way)
    if node.target is getattr and node.args[1] != "shape":
        raise Mixes(words(node))
    if node.target == "size" and len(node.args) > 1:
        if _dim(node, 1, "dim", 0) == cut.dim:
            raise Mixes(words(node))
        return None
    return Sizes(cut, len(shape(node.args[0])))


def _softmax(node: fx.Node, way: Passage) -> Split:
    cut = _input(node, way)
    if _dim(node, 1, "dim", -1) == cut.dim:
        raise Mixes(words(node))
    return cut


def _matmul(node: fx.Node, way: Passage) -> Split:
    """Of batches of matrices: the batch may be cut."""
    cut = _alike(node, way, node.all_input_nodes, len(shape(node)))
    if cut.dim >= len(shape(node)) - 2:
        raise Mixes(words(node))
    return cut


def _attention(node: fx.Node, way: Passage) -> Split:
    dropped = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p")
    if dropped or node.kwargs.get("enable_gqa"):
        raise Mixes(words(node))
    return _matmul(node, way)


_SDPA = F.scaled_dot_product_attention
_OF_SEVERAL: Mapping[Any, Callable[[fx.Node, Passage], Cut | None]] = {
    torch.matmul: _matmul, operator.matmul: _matmul, torch.bmm: _matmul, "matmul": _matmul,
    "bmm": _matmul, "__matmul__": _matmul, _SDPA: _attention,
}  # fmt: skip
_OF_ONE: Mapping[Any, Callable[[fx.Node, Passage], Cut | None]] = {
    "view": _reshape, "reshape": _reshape, torch.reshape: _reshape, "flatten": _reshape,
    torch.flatten: _reshape, nn.Flatten: _reshape, "unflatten": _reshape,
    torch.unflatten: _reshape, "transpose": _transpose, torch.transpose: _transpose,
    "swapaxes": _transpose, "permute": _permute, torch.permute: _permute, "chunk": _chunk,
    torch.chunk: _chunk, "split": _split, torch.split: _split, "unbind": _unbind,
    torch.unbind: _unbind, operator.getitem: _getitem, "softmax": _softmax,
    torch.softmax: _softmax, F.softmax: _softmax, getattr: _size, "size": _size,
}  # fmt: skip
