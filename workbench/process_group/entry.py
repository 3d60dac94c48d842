"""The entry from torch.distributed, which asks for a process group of the backend "workbench"."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any


def create(*options: Any) -> Any:
    """Return a process group of these options of torch's."""
    return _making().create(*options)


def session_of_job(rank: int) -> Any:
    """Return the session of this process, of world rank ``rank``, whose end is recorded too."""
    _making()
    from workbench.process_group.session import session

    return session(rank)


@cache
def _making() -> Any:
    from workbench.process_group import live_groups
    from workbench.process_group import making as group_making
    from workbench.process_group.session import record_end

    threading._register_atexit(record_end)  # type: ignore[attr-defined]
    threading._register_atexit(live_groups.close_all)  # type: ignore[attr-defined]  # comes first
    return group_making
