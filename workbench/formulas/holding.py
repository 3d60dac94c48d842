"""The contributions that every rank must hold at the end of a collective, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable

Held = tuple[int, ...] | None  # how many times each place's part is in; None: it does not matter

WITH_ROOT = ("broadcast", "reduce", "gather", "scatter")
AT_LEAST = ("barrier",)  # of which a part may be in more than once: to have heard of is enough


def expected(operation: str, n: int, root: int = 0, chunks: int | None = None) -> list[list[Held]]:
    """Return ``expected(...)[chunk][place]``: how many times each rank's contribution is in.

    ``root`` is a place too. Chunks are numbered as in the rows: of gather, scatter, all-gather and
    reduce-scatter chunk c is rank c's; of all-to-all chunk s·n + t goes from s to t; of the others
    all chunks are alike. ``chunks``: their number; if not given, n, or n² for all-to-all.

        expected("gather", 3, root=0)[2] == [(0, 0, 1), None, None]
        expected("all_reduce", 3)[0] == [(1, 1, 1)] * 3

    Raises ValueError for an unknown operation.
    """
    if operation not in _HELD:
        raise ValueError(f"no operation {operation!r}; there are {', '.join(_HELD)}")
    count = chunks or chunk_numbers(operation, n) or n
    return [
        [_HELD[operation](n, root, chunk, place) for place in range(n)] for chunk in range(count)
    ]


def chunk_numbers(operation: str, n: int) -> int:
    """Return the number of chunks where the number names the owner; 0: the algorithm decides."""
    if operation == "all_to_all":
        return n * n
    return n if operation in ("gather", "scatter", "all_gather", "reduce_scatter") else 0


def sends_something(operation: str, n: int, nbytes: float) -> bool:
    """Return whether a rank sends: with 0 bytes only if it cannot know the others' sizes."""
    return n > 1 and (nbytes > 0 or operation in ("barrier", "all_to_all"))


def _all(n: int) -> Held:
    return (1,) * n


def _only(n: int, place: int) -> Held:
    return tuple(int(other == place) for other in range(n))


_HELD: dict[str, Callable[[int, int, int, int], Held]] = {
    "all_reduce": lambda n, root, chunk, place: _all(n),
    "broadcast": lambda n, root, chunk, place: _only(n, root),
    "reduce": lambda n, root, chunk, place: _all(n) if place == root else None,
    "gather": lambda n, root, chunk, place: _only(n, chunk) if place == root else None,
    "scatter": lambda n, root, chunk, place: _only(n, root) if place == chunk else None,
    "all_gather": lambda n, root, chunk, place: _only(n, chunk),
    "reduce_scatter": lambda n, root, chunk, place: _all(n) if place == chunk else None,
    "all_to_all": lambda n, root, chunk, place: (
        _only(n, chunk // n) if place == chunk % n else None
    ),
    "barrier": lambda n, root, chunk, place: _all(n),
}
