"""The rules for a split value whose dims are merged, divided or moved.

A reshape keeps the split as long as the split dim stays the outermost of those that it merges: then
a rank's channels stay together. Where sizes are written as arguments, the rank's own replaces them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from workbench.training.tensor_parallel.cut import (
    Mixes,
    Other,
    Passage,
    Split,
    dim_argument,
    shape,
    split_input,
    words,
)


def reshape(node: fx.Node, way: Passage) -> Split:
    """Follow a reshape: the cut dim is the first of those merged into one, or is split up."""
    cut, before, after = split_input(node, way), shape(node.args[0]), shape(node)
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
    split = Split(dim, blocks, cut.units, cut.unit // rest, cut.source)
    _own_size(node, way, split)
    return split


def _together(
    before: tuple[int, ...], after: tuple[int, ...], dim: int, node: fx.Node
) -> tuple[range, range]:
    """Return the dims that a reshape merges with ``dim`` of ``before``, and their counterpart."""
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
    """Replace the cut dim's size by the rank's own, where sizes are written as arguments."""
    if node.target in ("flatten", torch.flatten) or node.op == "call_module":
        return
    if node.target in ("unflatten", torch.unflatten):
        path: tuple[int, ...] = (2, cut.dim - (dim_argument(node, 1, "dim", 0)))
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


def transpose(node: fx.Node, way: Passage) -> Split:
    cut = split_input(node, way)
    a, b = dim_argument(node, 1, "dim0", 0), dim_argument(node, 2, "dim1", 1)
    return replace(cut, dim={a: b, b: a}.get(cut.dim, cut.dim))


def permute(node: fx.Node, way: Passage) -> Split:
    cut = split_input(node, way)
    order: Any = node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
    return replace(cut, dim=[dim % len(order) for dim in order].index(cut.dim))
