"""The hook that torch runs at the end of its import (entry point ``torch.backends``).

It makes "workbench" a backend in every program of this environment, and imports nothing of ours
before its first group.

It is installed beside the package, as ``_workbench_autoload``: torch fails to import where an entry
point raises, and neither a user's own ``workbench.py`` nor a checkout that has moved may do that.
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import Any


def autoload() -> None:
    """Make the backend known. Never raises."""
    try:
        register()
    except Exception as error:
        text = f"[workbench] not a backend here: {type(error).__name__}: {error}"
        print(text, file=sys.stderr, flush=True)


def register() -> None:
    """Make the backend known to torch.distributed, once; WORKBENCH_DEFAULT=1: instead of Gloo."""
    import torch.distributed as dist

    if not dist.is_available() or "WORKBENCH" in dist.Backend._plugins:
        return
    dist.Backend.register_backend("workbench", _create, extended_api=True, devices=["cpu", "cuda"])
    _adopt_jobs()
    if (choice := os.environ.get("WORKBENCH_DEFAULT", "0")) == "1":
        _stand_in_for_gloo(dist)
    elif choice not in ("", "0"):
        text = f"[workbench] WORKBENCH_DEFAULT={choice!r} is ignored: it takes 1, or 0"
        print(text, file=sys.stderr, flush=True)
    if folder := os.environ.get("WORKBENCH_AUDIT", ""):
        from workbench.auditing.ranks.forks import install

        install(folder)
    if way := os.environ.get("WORKBENCH_ATTACH", ""):
        _attach(dist.distributed_c10d, way)


def _attach(c10d: Any, way: str) -> None:
    """Stand in front of the function by which torch makes groups. An attached job runs in any case:
    whatever fails in here, its groups are torch's own.
    """
    helper = c10d._new_process_group_helper

    @wraps(helper)
    def make(*args: Any, **options: Any) -> Any:
        try:
            from workbench.attaching import groups

            problem = groups.fits(helper)
        except Exception as error:
            problem = _hidden(error) or f"{type(error).__name__}: {error}"
        if problem:
            print(f"[workbench] not attached: {problem}", file=sys.stderr, flush=True)
            c10d._new_process_group_helper = helper
            return helper(*args, **options)
        return groups.make_group(helper, way, *args, **options)

    c10d._new_process_group_helper = make


def _create(*options: Any) -> Any:
    try:
        from workbench.process_group.entry import create
    except ModuleNotFoundError as error:
        if hidden := _hidden(error):
            raise ModuleNotFoundError(hidden, name=error.name) from None
        raise
    return create(*options)


def _hidden(error: Exception) -> str:
    """Return which file or folder has our name, and is imported instead of the package; "": it is
    something else that is missing.
    """
    of_ours = isinstance(error, ModuleNotFoundError) and str(error.name).startswith("workbench")
    module = sys.modules.get("workbench")
    if not of_ours or module is None:
        return ""
    folder = next(iter(getattr(module, "__path__", ())), "")
    if folder and os.path.isdir(os.path.join(folder, "process_group")):
        return ""
    place = getattr(module, "__file__", None) or folder
    return (
        f"{place} hides the workbench: Python imports it under the same name. Rename it, or start "
        "the program in another folder"
    )


def _adopt_jobs() -> None:
    """Let ``env://``, which is torch's way where a program names none, know the variables of
    mpiexec and srun: only where RANK is missing, so that it could but fail.
    """
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    torchs = handlers["env"]

    @wraps(torchs)
    def handler(url: Any, *args: Any, **options: Any) -> Any:
        if "RANK" not in os.environ and "rank=" not in str(url):
            from workbench.process_group.job_variables import adopt

            adopt(os.environ, *args[:1], **{k: v for k, v in options.items() if k == "timeout"})
        return torchs(url, *args, **options)

    handlers["env"] = handler


def _stand_in_for_gloo(dist: Any) -> None:
    """Make this backend the default for tensors of the host, and the one that "gloo" names.

    "cpu:gloo,cuda:nccl" stays as it is: torch lets a group of Python's serve all devices or none.
    """
    dist.Backend.default_device_backend_map["cpu"] = "workbench"
    for name, place in (("init_process_group", 0), ("new_group", 2)):
        wrapper = _renamed(getattr(dist, name), place)
        for module in (dist, dist.distributed_c10d):
            setattr(module, name, wrapper)


def _renamed(function: Any, place: int) -> Any:
    """Wrap ``function``: its ``backend`` (argument ``place``) "gloo" becomes "workbench"."""

    def ours(backend: Any) -> Any:
        return "workbench" if isinstance(backend, str) and backend.lower() == "gloo" else backend

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], ours(args[place]), *args[place + 1 :])
        elif "backend" in options:
            options["backend"] = ours(options["backend"])
        return function(*args, **options)

    return call
