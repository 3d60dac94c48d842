"""The rules for a split value in the operations between two split layers.

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

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from workbench.training.tensor_parallel import pieces, reshapes
from workbench.training.tensor_parallel.cut import (
    AlsoSplit,
    Cut,
    Mixes,
    Passage,
    Pieces,
    Sizes,
    Split,
    dim_argument,
    shape,
    split_input,
    words,
)

ELEMENTWISE = {
    torch.tanh,
    torch.relu,
    torch.sigmoid,
    torch.exp,
    torch.neg,
    torch.abs,
    torch.sqrt,
    torch.rsqrt,
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.pow,
    torch.square,
    torch.erf,
    torch.where,
    torch.clamp,
    torch.sin,
    torch.cos,
    F.relu,
    F.gelu,
    F.silu,
    F.elu,
    F.leaky_relu,
    F.tanh,
    F.sigmoid,
    F.softplus,
    F.mish,
    F.hardtanh,
    F.relu6,
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.neg,
    operator.pow,
    operator.iadd,
    operator.imul,
    "tanh",
    "relu",
    "sigmoid",
    "exp",
    "neg",
    "abs",
    "sqrt",
    "rsqrt",
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "square",
    "erf",
    "clamp",
    "contiguous",
    "clone",
    "float",
    "double",
    "masked_fill",
    "type_as",
    "to",
    "detach",
}
ELEMENTWISE_MODULES = (
    nn.Tanh,
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.ELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Mish,
    nn.Hardtanh,
    nn.ReLU6,
    nn.Identity,
    nn.Tanhshrink,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.CELU,
    nn.SELU,
    nn.LogSigmoid,
    nn.Softsign,
)
POOLING = (
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.ZeroPad2d,
)
POOLING_FUNCTIONS = {
    F.avg_pool1d: 1,
    F.avg_pool2d: 2,
    F.max_pool1d: 1,
    F.max_pool2d: 2,
    F.adaptive_avg_pool2d: 2,
}


def follow(node: fx.Node, way: Passage, module: nn.Module | None) -> Cut | None:
    """Return how the value of ``node`` is cut, given its inputs; None if it is whole.

    ``module``: the module that it calls. Every node has its whole value's shape in
    ``meta["shape"]``.
    """
    target = type(module) if module is not None else node.target
    first = way.cuts.get(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
    if isinstance(module, ELEMENTWISE_MODULES) or target in ELEMENTWISE:
        return _elementwise(node, way)
    if isinstance(module, nn.Dropout) and not module.p:
        return _elementwise(node, way)
    if isinstance(first, Sizes | Pieces):
        return pieces.item(node, first)
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


def _elementwise(node: fx.Node, way: Passage) -> Split:
    """Require all cut operands to be cut alike, and whole ones to be equal for all channels."""
    return _alike(node, way, node.all_input_nodes, len(shape(node)))


def _alike(node: fx.Node, way: Passage, operands: list[fx.Node], ndim: int) -> Split:
    common: Split | None = None
    for one in operands:
        cut = way.cuts.get(one)
        if cut is None:
            continue
        if not isinstance(cut, Split):
            raise Mixes(words(node))
        moved = replace(
            cut, dim=cut.dim + ndim - len(shape(one))
        )  # broadcasting adds dims in front
        if common is not None and not moved.same(common):
            raise Mixes(words(node))
        common = common or moved
    assert common is not None
    for one in operands:
        if one in way.cuts or "shape" not in one.meta:
            continue
        dim = common.dim - (ndim - len(shape(one)))
        if dim >= 0 and shape(one)[dim] != 1:
            raise AlsoSplit(one)
        if one.meta["grad"]:
            way.whole.append((node, one))
    return common


def _pooling(node: fx.Node, way: Passage, spatial: int) -> Split:
    """Keep the cut if it is by channels: pooling treats each channel by itself."""
    cut = split_input(node, way)
    if cut.dim >= len(shape(node.args[0])) - spatial:
        raise Mixes(words(node))
    return cut


def _softmax(node: fx.Node, way: Passage) -> Split:
    cut = split_input(node, way)
    if dim_argument(node, 1, "dim", -1) == cut.dim:
        raise Mixes(words(node))
    return cut


def _matmul(node: fx.Node, way: Passage) -> Split:
    """Follow a product of batches of matrices: the batch may be cut."""
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
    torch.matmul: _matmul,
    operator.matmul: _matmul,
    torch.bmm: _matmul,
    "matmul": _matmul,
    "bmm": _matmul,
    "__matmul__": _matmul,
    _SDPA: _attention,
}
_OF_ONE: Mapping[Any, Callable[[fx.Node, Passage], Cut | None]] = {
    "view": reshapes.reshape,
    "reshape": reshapes.reshape,
    torch.reshape: reshapes.reshape,
    "flatten": reshapes.reshape,
    torch.flatten: reshapes.reshape,
    nn.Flatten: reshapes.reshape,
    "unflatten": reshapes.reshape,
    torch.unflatten: reshapes.reshape,
    "transpose": reshapes.transpose,
    torch.transpose: reshapes.transpose,
    "swapaxes": reshapes.transpose,
    "permute": reshapes.permute,
    torch.permute: reshapes.permute,
    "chunk": pieces.chunk,
    torch.chunk: pieces.chunk,
    "split": pieces.split,
    torch.split: pieces.split,
    "unbind": pieces.unbind,
    torch.unbind: pieces.unbind,
    operator.getitem: pieces.index,
    "softmax": _softmax,
    torch.softmax: _softmax,
    F.softmax: _softmax,
    getattr: pieces.size,
    "size": pieces.size,
}
