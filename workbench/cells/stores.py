"""Stores of the driver's, at which the groups that cells make themselves are formed.

A group needs one that none was made with before: keys of a group that has ended would mislead. It
stays for as long as a rank is connected to it, as its groups may need it yet.
"""

from __future__ import annotations

from pathlib import Path

from workbench.launchers.processes.pool import meeting_place

ESTABLISHED = "01"  # in /proc/net/tcp


class Stores:
    """``len``: how many there are."""

    def __init__(self, ranks: int) -> None:
        self._ranks, self._stores = ranks, [meeting_place(ranks)]
        self._no_keys = self._stores[0].num_keys()

    def __len__(self) -> int:
        return len(self._stores)

    def free_port(self) -> int:
        """Return the port of a store that no group has used."""
        if self._stores[-1].num_keys() != self._no_keys:
            busy = connections()
            self._stores = [one for one in self._stores if busy is None or busy.count(one.port) > 1]
            self._stores.append(meeting_place(self._ranks))
        return int(self._stores[-1].port)

    def close(self) -> None:
        """Close the stores; there are no free ports afterwards."""
        self._stores.clear()


def connections() -> list[int] | None:
    """Return the local ports of all TCP connections, one of them the driver's own to each store.

    None: the kernel does not list them.
    """
    try:
        lines = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return None
    rows = [line.split() for line in lines]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == ESTABLISHED]
