"""A rank's view of the current call, as one integer that a peer can compare and put into words.

63 bits: collective (6), reduction (4), dtype (5), the root's world rank + 1 (12), elements (36).
"""

from __future__ import annotations

import torch

COLLECTIVES = (
    "p2p all_reduce broadcast reduce all_gather gather scatter reduce_scatter all_to_all barrier "
    "all_gather_coalesced reduce_scatter_coalesced all_reduce_coalesced other"
).split()
REDUCTIONS = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM".split()
DTYPES = (
    "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool "
    "uint16 uint32 uint64 float8_e4m3fn float8_e5m2 complex32"
).split()
_COLLECTIVE = {name: code for code, name in enumerate(COLLECTIVES)}
_REDUCTION = {name: code for code, name in enumerate(REDUCTIONS)}
_DTYPE = {getattr(torch, name): code for code, name in enumerate(DTYPES) if hasattr(torch, name)}
_NO_DTYPE, _NO_REDUCTION = 31, 15
_MOST_ELEMENTS, _MOST_ROOT = (1 << 36) - 1, (1 << 12) - 2
_TOWARD = {"reduce": "to", "gather": "to"}  # the word before the root; "from" in others


def signature(
    collective: str,
    dtype: torch.dtype | None = None,
    elements: int = 0,
    reduction: str = "",
    root: int = -1,
) -> int:
    """Return the fingerprint of a call. ``elements`` is 0 where ranks may differ in it (as in an
    uneven all-to-all).
    """
    return (
        (_COLLECTIVE[collective] << 57)
        | (_REDUCTION.get(reduction, _NO_REDUCTION) << 53)
        | (_DTYPE.get(dtype, _NO_DTYPE) << 48 if dtype is not None else _NO_DTYPE << 48)
        | (min(root, _MOST_ROOT) + 1) << 36
        | min(elements, _MOST_ELEMENTS)
    )


def collective_of(number: int) -> str:
    """Return the name of the fingerprint's collective."""
    code = number >> 57 & 63
    return COLLECTIVES[code] if code < len(COLLECTIVES) else f"operation {code}"


def root_of(number: int) -> int:
    """Return the root's world rank; -1 if there is none."""
    return (number >> 36 & 0xFFF) - 1


def nbytes_of(number: int) -> int:
    """Return the bytes of the fingerprint's tensor; 0 where ranks may differ in them."""
    dtype = number >> 48 & 31
    if dtype >= len(DTYPES) or not (kind := getattr(torch, DTYPES[dtype], None)):
        return 0
    return (number & _MOST_ELEMENTS) * int(kind.itemsize)


def describe(number: int) -> str:
    """Return the fingerprint in words: "reduce(SUM) of 1,000 float32 to rank 2"."""
    name, reduction, root = collective_of(number), number >> 53 & 15, root_of(number)
    dtype, elements = number >> 48 & 31, number & _MOST_ELEMENTS
    words = name
    if reduction < len(REDUCTIONS):
        words += f"({REDUCTIONS[reduction]})"
    if dtype < len(DTYPES):
        words += f" of {elements:,} {DTYPES[dtype]}" if elements else f" of {DTYPES[dtype]}"
    if root >= 0:
        words += f" {_TOWARD.get(name, 'from')} rank {root}"
    return words
