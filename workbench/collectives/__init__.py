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
for hosts reads ``comm.levels`` (common/topology.py; () where nothing is known of them).
A user's own all-reduce takes ``(comm, x)``, with ``x`` a flat tensor, and returns the sum or leaves
it in ``x``. Names that begin with an underscore are not algorithms.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from workbench.common import extensions
from workbench.common.errors import SpecError

OPERATIONS = (
    "all_reduce",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)


def algorithms(operation: str) -> list[str]:
    """Return the names of an operation's algorithms: "naive", "ring", ... of "all_reduce"."""
    stems = extensions.files("collectives", f"{operation}_*.py")
    ours = [stem for stem in stems if _operation(stem) == operation]
    return sorted(stem.removeprefix(f"{operation}_") for stem in ours)


def _operation(stem: str) -> str:
    """Return the operation of a file such as "reduce_scatter_ring": the longest name that fits."""
    return max((one for one in OPERATIONS if stem.startswith(f"{one}_")), key=len, default="")


def refusal(takes: Any, n: int) -> str:
    """Return the numbers of ranks that an algorithm takes instead of ``n``; "" if it takes ``n``.

    ``takes``: the algorithm's own check, if it has one. Raises SpecError if the check itself fails.
    """
    if not callable(takes):
        return ""
    try:
        answer = takes(n)
    except Exception as error:
        raise SpecError(f"takes({n}) raised {type(error).__name__}: {error}") from None
    if isinstance(answer, bool):  # True or False for n, without words for what it takes
        return "" if answer else "other numbers of ranks"
    return str(answer or "")


def takes_of(function: Callable[..., Any]) -> Any:
    """Return the ``takes`` of a loaded function: its own, or that of its file."""
    beside = sys.modules.get(getattr(function, "__module__", ""))
    return getattr(function, "takes", None) or getattr(beside, "takes", None)


def users_own(function: Callable[..., Any], takes: Any = None) -> Callable[..., Any]:
    """Wrap a user's ``f(comm, x)`` or ``f(comm, x, reduce)`` like a built-in one.

    ``takes``: its check of the number of ranks.
    """
    import numpy as np  # here: names are asked for where torch is not loaded
    import torch

    from workbench.common.errors import CollectiveError
    from workbench.messaging.chunk_index import whole_of
    from workbench.messaging.reduction_tracer import Additions
    from workbench.transports.arrays import SUM, kind_of

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
        if (what := kind_of(result)) != (expected := kind_of(x)):
            raise CollectiveError(
                f"{function.__name__} returned {what} on rank {comm.members.world[comm.rank]}; "
                f"expected {expected}, or None with the sum in x"
            )
        return torch.from_numpy(result) if isinstance(result, np.ndarray) else result

    all_reduce.takes = takes or getattr(function, "takes", None)  # type: ignore[attr-defined]
    return all_reduce
