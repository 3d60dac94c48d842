"""The same PyTorch code over "workbench" and over "gloo": what each rank gets must be the same.

A case is a function ``case(rank, n)`` of a test module. It is run on every rank with a default
group of either backend, of its own each time, and returns whatever shall be compared: tensors,
numbers, strings, in lists, tuples and dicts. One call of ``compare`` starts n processes and runs
all its cases there, so that a whole family of them costs one spawn.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.processes import ROOT, values

BACKENDS = ("workbench", "gloo")
LIMIT = timedelta(seconds=60)  # of groups: nothing that works comes near it, on busy cores either
Case = Callable[[int, int], Any]


def compare(
    cases: Sequence[Case], n: int, *, exact: bool = False, timeout: float = 150.0, **options: Any
) -> None:
    """Run every case on ``n`` ranks over both backends; fail with all that differed, by case.

    ``exact``: floating numbers must be equal bit for bit; else as sums in another order are.
    ``options`` are those of ``tests.processes.run``. A case that raises has failed, over either
    backend; one that expects an error catches it and returns its name (``raised``).
    """
    names = [[_module(case), case.__name__] for case in cases]
    reports = values(_over_both, n, names, exact, backend="", timeout=timeout, **options)
    words = [f"rank {rank}, {line}" for rank, all_said in enumerate(reports) for line in all_said]
    assert not words, "\n\n".join(words)


def raised(action: Callable[[], Any]) -> str:
    """The name of the class of the error that ``action()`` raises; "" if it raises none."""
    try:
        action()
    except Exception as error:
        return type(error).__name__
    return ""


def all_here(store: Any, name: str, n: int) -> None:
    """Meet without the group: Gloo's barrier raises what an operation just before it was refused
    for, or does not, as its threads happen to run.
    """
    if store.add(f"{name} count", 1) == n:
        store.set(name, "")
    store.wait([name], 1.5 * LIMIT)  # a wait within the group ends before that


class Refused(str):
    """The name of the error that a call raised. What Gloo refuses, ours may do or refuse."""


def tried(action: Callable[[], Any]) -> Any:
    """Return what ``action()`` gives, or that it was refused."""
    try:
        return action()
    except Exception as error:
        return Refused(type(error).__name__)


def difference(a: Any, b: Any, *, exact: bool = False, at: str = "") -> str:
    """Return where two outcomes differ first, in words; "" where they do not."""
    if isinstance(b, Refused):
        return ""
    if type(a) is not type(b):
        return f"at {at or 'top'}: {a!r} is of another type than {b!r}"
    if isinstance(a, torch.Tensor):
        try:
            close = {"rtol": 0.0, "atol": 0.0} if exact else {}
            torch.testing.assert_close(a, b, equal_nan=True, **close)  # type: ignore[arg-type]
        except AssertionError as error:
            return f"at {at or 'top'}: {error}\n{a}\n{b}"
        return ""
    if isinstance(a, Mapping):
        if list(a) != list(b):
            return f"at {at or 'top'}: keys {list(a)} and {list(b)}"
        inner = [(f"{at}[{key!r}]", a[key], b[key]) for key in a]
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"at {at or 'top'}: {len(a)} and {len(b)} of them: {a!r}, {b!r}"
        inner = [(f"{at}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    elif isinstance(a, float):
        same = a == b or (math.isnan(a) and math.isnan(b))
        same = same or (not exact and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6))
        return "" if same else f"at {at or 'top'}: {a!r} and {b!r}"
    else:
        return "" if a == b else f"at {at or 'top'}: {a!r} and {b!r}"
    differences = (difference(x, y, exact=exact, at=place) for place, x, y in inner)
    return next(filter(None, differences), "")


def _module(case: Case) -> str:
    return ".".join(Path(inspect.getfile(case)).relative_to(ROOT).with_suffix("").parts)


# -- on every rank --


def _over_both(rank: int, n: int, names: list[list[str]], exact: bool) -> list[str]:
    import workbench  # noqa: F401 (makes the backend known)

    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
    words = []
    for module, name in names:
        case: Case = getattr(importlib.import_module(module), name)
        began, outcomes = time.monotonic(), []
        for backend in BACKENDS:
            try:
                outcomes.append(_over(backend, store, case, rank, n))
            except Exception:
                report = f"{name} over {backend}:\n{traceback.format_exc()}"
                print(report, flush=True)  # seen too if the end of what failed hangs
                words.append(report)
        print(f"{name}: {time.monotonic() - began:.2f} s", flush=True)
        if len(outcomes) == len(BACKENDS) and (report := difference(*outcomes, exact=exact)):
            words.append(f"{name}, {' and '.join(BACKENDS)}, {report}")
    return words


def _over(backend: str, store: Any, case: Case, rank: int, n: int) -> Any:
    """The case's outcome with a default group of this backend."""
    own = dist.PrefixStore(f"{case.__module__} {case.__name__} {backend}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=n, timeout=LIMIT)
    # Gloo returns before the others are connected, and a case may end its group right away.
    all_here(own, "begun", n)
    try:
        return case(rank, n)
    except Exception as error:
        # A Gloo group that dies with what a traceback holds may wait forever for a thread of its
        # own, which waits for the interpreter.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        # All are done before the first takes its end down, else gloo may fail the others.
        all_here(own, "done", n)
        dist.destroy_process_group()
