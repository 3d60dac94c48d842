"""The rules for pieces of a split value: chunks, items, indices, and the numbers of its shape."""

from __future__ import annotations

import math
import operator
from dataclasses import replace

from torch import fx

from workbench.training.tensor_parallel.cut import (
    Cut,
    Mixes,
    Other,
    Passage,
    Pieces,
    Sizes,
    Split,
    dim_argument,
    shape,
    split_input,
    words,
)


def chunk(node: fx.Node, way: Passage) -> Pieces:
    cut, parts = split_input(node, way), node.args[1] if len(node.args) > 1 else None
    if dim_argument(node, 2, "dim", 0) != cut.dim:
        return Pieces(cut)
    if not isinstance(parts, int) or cut.size % parts:
        raise Mixes(words(node))
    return Pieces(_of_blocks(cut, parts))


def split(node: fx.Node, way: Passage) -> Pieces:
    cut, each = split_input(node, way), node.args[1] if len(node.args) > 1 else None
    if dim_argument(node, 2, "dim", 0) != cut.dim:
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


def unbind(node: fx.Node, way: Passage) -> Pieces:
    cut, dim = split_input(node, way), dim_argument(node, 1, "dim", 0)
    if dim == cut.dim:
        raise Other(cut.source, blocks=shape(node.args[0])[dim], unit=0)
    return Pieces(replace(cut, dim=cut.dim - (dim < cut.dim)))


def index(node: fx.Node, way: Passage) -> Split:
    """Follow ``x[i]``, ``x[:, -1]``, as long as the cut dim is taken whole."""
    cut = split_input(node, way)
    index = node.args[1] if isinstance(node.args[1], tuple | list) else (node.args[1],)
    dim, dims = 0, len(shape(node.args[0]))
    left = 0  # dims before the cut one that remain
    for one in index:
        if one is Ellipsis:
            dim += dims - sum(1 for other in index if other not in (None, Ellipsis)) - dim
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


def item(node: fx.Node, cut: Sizes | Pieces) -> Cut | None:
    """Follow an item of a tuple, or a number of a shape, which may differ by rank."""
    at = node.args[1] if node.target is operator.getitem else None
    if isinstance(cut, Pieces) and isinstance(at, int):
        return cut.each
    if isinstance(cut, Sizes) and isinstance(at, int) and at % cut.dims != cut.of.dim:
        return None
    if isinstance(cut, Sizes) and isinstance(at, int) and not node.users:
        return None
    raise Mixes(words(node))


def size(node: fx.Node, way: Passage) -> Sizes | None:
    """Follow ``x.shape``, ``x.size()``, ``x.size(0)``."""
    cut = split_input(node, way)
    if node.target is getattr and node.args[1] != "shape":
        raise Mixes(words(node))
    if node.target == "size" and len(node.args) > 1:
        if dim_argument(node, 1, "dim", 0) == cut.dim:
            raise Mixes(words(node))
        return None
    return Sizes(cut, len(shape(node.args[0])))
