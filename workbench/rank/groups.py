"""The process groups of one rank's job, by name, made on first use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from workbench.process_group.session import Session


class Groups:
    """Groups of all ranks, or of some."""

    def __init__(self, session: Session, rank: int, ranks: int, timeout_ns: int) -> None:
        self._session, self._rank, self._ranks = session, rank, ranks
        self._timeout = timedelta(microseconds=timeout_ns / 1000)
        self._groups: dict[str, dist.ProcessGroup] = {}

    def get(self, name: str, ranks: Sequence[int] | None = None) -> dist.ProcessGroup:
        """Return the group of this name, of all ranks or of these.

        All of them make it, in the same order; a rank that is not in it must not use it.
        """
        if name not in self._groups:
            within = list(range(self._ranks)) if ranks is None else list(ranks)
            if self._rank in within:  # torch makes no group of ours for the others
                self._session.next_group = name
            self._groups[name] = dist.new_group(within, timeout=self._timeout)
        return self._groups[name]
