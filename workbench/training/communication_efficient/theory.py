"""The payload bytes that a rank sends in training, as formulas: exact, for a ring.

    data parallel   iterations · Σ over tensors of 2(p-1)/p·n      n elements of a tensor
    fusion          the same, Σ over fused buffers
    local SGD       rounds · 2(p-1)/p·N, and data parallel's in the warm-up
    DiLoCo          rounds · 2(p-1)/p·N                            N elements of the model
    top-k           iterations · (p-1)·2k: an index is as wide as a value

Where p does not divide n, ranks differ by a chunk's remainder.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.formulas import ALGORITHMS

WIDTH = {"float32": 4, "float64": 8}  # bytes of an element


def rounds(iterations: int, every: int, warmup: int = 0) -> int:
    """Return how often replicas are averaged in training."""
    return max(0, iterations - warmup) // every


def all_reduced(ranks: int, sizes: Sequence[int], dtype: str = "float32") -> list[int]:
    """Return the bytes that each rank sends when tensors of these sizes go round a ring."""
    if ranks == 1:
        return [0]
    each = [ALGORITHMS["ring"].sent(ranks, n) for n in sizes]
    return [WIDTH[dtype] * sum(sent) for sent in zip(*each, strict=True)]


def fused(sizes: Sequence[int], threshold: int, dtype: str = "float32") -> list[int]:
    """Return the elements of the buffers of ``fusion``; ``sizes``: last layer first."""
    result: list[int] = []
    for n in sizes:
        if result and (result[-1] + n) * WIDTH[dtype] <= threshold:
            result[-1] += n
        else:
            result.append(n)
    return result


def data_parallel(
    ranks: int, iterations: int, sizes: Sequence[int], dtype: str = "float32"
) -> list[int]:
    return [iterations * sent for sent in all_reduced(ranks, sizes, dtype)]


def local_sgd(
    ranks: int,
    iterations: int,
    sizes: Sequence[int],
    every: int,
    warmup: int = 0,
    dtype: str = "float32",
) -> list[int]:
    """Return the bytes that each rank sends; DiLoCo's too, without a warm-up."""
    at_first = data_parallel(ranks, min(warmup, iterations), sizes, dtype)
    whole = all_reduced(ranks, [sum(sizes)], dtype)
    often = rounds(iterations, every, warmup)
    return [first + often * sent for first, sent in zip(at_first, whole, strict=True)]


def top_k(
    ranks: int, iterations: int, sizes: Sequence[int], ratio: float, dtype: str = "float32"
) -> list[int]:
    k = max(1, round(ratio * sum(sizes)))
    return [iterations * (ranks - 1) * 2 * k * WIDTH[dtype]] * ranks


def top_k_pays_below(ranks: int) -> float:
    """Return the ratio below which top-k sends less than a ring: (p-1)·2k < 2(p-1)/p·N."""
    return 1 / ranks
