"""Collective algorithms, one small file each: ``<operation>_<algorithm>.py`` defines
``<operation>``.

Flat arrays (numpy; torch tensors of dtypes that numpy lacks), alike on every rank unless said; p
ranks, N elements of the whole, n = N/p of a rank's part:

    all_reduce(comm, x_N, reduce=SUM)                  in place; returns x_N
    broadcast(comm, x_N, root)                         in place
    reduce(comm, x_N, root, reduce=SUM)                in place on the root
    gather(comm, x_n, into_N, root)                    into_N on the root, None elsewhere
    scatter(comm, x_N, into_n, root)                   x_N on the root, None elsewhere
    all_gather(comm, x_n, into_N)
    reduce_scatter(comm, x_N, into_n, reduce=SUM)
    all_to_all(comm, x_N, into_M, sends, receives)     elements for, and from, each rank
    barrier(comm)

A file that cannot take every number of ranks has ``takes(p) -> str``: "", or what it takes instead,
and so may a function (``f.takes = ...``): then it is refused before anything starts. An algorithm
for hosts reads ``comm.levels`` (hosts.py; () where nothing is known of them).
A user's own all-reduce takes ``(comm, x)``, with ``x`` a flat tensor, and returns the sum or leaves
it in ``x``. Names that begin with an underscore are no algorithms.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import SpecError

OPERATIONS = (
    "all_reduce", "broadcast", "reduce", "gather", "scatter",
    "all_gather", "reduce_scatter", "all_to_all", "barrier",
)  # fmt: skip


def algorithms(operation: str) -> list[str]:
    """The names of an operation's algorithms: "naive", "ring", ... of "all_reduce"."""
    stems = [file.stem for file in Path(__file__).parent.glob(f"{operation}_*.py")]
    ours = [stem for stem in stems if _operation(stem) == operation]
    return sorted(stem.removeprefix(f"{operation}_") for stem in ours)


def _operation(stem: str) -> str:
    """What "reduce_scatter_ring" is: an operation's name may begin another's."""
    return max((one for one in OPERATIONS if stem.startswith(f"{one}_")), key=len, default="")


def refusal(takes: Any, n: int) -> str:
    """What an algorithm with this ``takes`` takes instead of ``n`` ranks; "" if it takes them, or
    has none. Raises SpecError if that itself fails.
    """
    if not callable(takes):
        return ""
    try:
        told = takes(n)
    except Exception as error:
        raise SpecError(f"takes({n}) raised {type(error).__name__}: {error}") from None
    if isinstance(told, bool):  # what it says of n, and not what it takes instead
        return "" if told else "other numbers of ranks"
    return str(told or "")


def takes_of(function: Callable[..., Any]) -> Any:
    """``takes`` of a function that was loaded: its own, or that of the file it stands in."""
    beside = sys.modules.get(getattr(function, "__module__", ""))
    return getattr(function, "takes", None) or getattr(beside, "takes", None)


def users_own(function: Callable[..., Any], takes: Any = None) -> Callable[..., Any]:
    """A user's ``f(comm, x)`` or ``f(comm, x, reduce)`` as one of ours, with its ``takes``."""
    import numpy as np  # here: names are asked for where torch is not loaded
    import torch

    from workbench.additions import Additions
    from workbench.arrays import SUM, kind_of
    from workbench.errors import CollectiveError
    from workbench.parts import whole_of

    reduces = len(inspect.signature(function).parameters) > 2

    def all_reduce(comm: Any, x_N: Any, reduce: str = SUM) -> Any:
        x = torch.from_numpy(x_N) if isinstance(x_N, np.ndarray) else x_N
        if not reduces and reduce != SUM:
            raise CollectiveError(
                f"{function.__name__}(comm, x) sums; {reduce} was asked for: "
                "give it a third parameter, reduce"
            )
        comm.whole = whole_of(x)
        with Additions(comm, x):
            result = function(comm, x, reduce) if reduces else function(comm, x)
        if result is None:
            return x
        if (what := kind_of(result)) != (wanted := kind_of(x)):
            raise CollectiveError(
                f"{function.__name__} returned {what} on rank {comm.members.world[comm.rank]}; "
                f"expected {wanted}, or None with the sum in x"
            )
        return torch.from_numpy(result) if isinstance(result, np.ndarray) else result

    all_reduce.takes = takes or getattr(function, "takes", None)  # type: ignore[attr-defined]
    return all_reduce
