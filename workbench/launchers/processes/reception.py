"""The driver's reception: it answers agents from the moment it listens, in a thread of its own.

A launcher may take minutes to start its agents, and the first have called by then; a run may have
hundreds. Each that calls is known at once, and hears that the driver is there until all have.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.common import ipc, threads
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.channel import Channel, Identity
from workbench.launchers.processes.doorkeeper import Doorkeeper
from workbench.launchers.processes.remote_rank import ALIVE_S, RemoteRank
from workbench.transports.meeting_place import must_reach

# Seconds until the callers are looked at again: while one is being asked, and otherwise.
SOON, LOOK = 0.002, 0.05


class Reception:
    """Waits at ``host`` for the agents of these ranks; ``encrypted``: those may call over the
    network, and call again where they were cut off. ``call``: what an agent needs to call.
    """

    def __init__(self, host: str, ranks: Sequence[int], encrypted: bool) -> None:
        self._ranks, self._encrypted = [*ranks], encrypted
        self._doorkeeper = Doorkeeper(Identity.make() if encrypted else None, len(ranks))
        must_reach(host)
        self._listener = socket.create_server((host, 0), backlog=max(128, len(ranks)))
        self.call = f"{host}:{self._listener.getsockname()[1]}/{self._doorkeeper.proof}"
        self._called: dict[int, RemoteRank] = {}
        self._news = threading.Condition()
        self._progress = time.monotonic()  # when the last of them has called
        self._patience: float | None = None  # seconds that one may be cut off; None: not begun
        self._greeted = 0.0
        self._closed, self._ended = threading.Event(), False
        threads.start(self._serve, "workbench hosts", self._closed.set)

    @property
    def called(self) -> int:
        """Return the number of ranks whose agents have called."""
        return len(self._called)

    def wait(self, seconds: float) -> bool:
        """Wait until all have called, no longer than that. Returns whether they have."""
        with self._news:
            return self._news.wait_for(lambda: len(self._called) == len(self._ranks), seconds)

    def silent_for(self, since: float) -> float:
        """Return for how many seconds no agent has called, counted from ``since`` at most."""
        return time.monotonic() - max(since, self._progress)

    def take(self, patience: float) -> list[RemoteRank]:
        """Return all ranks; one that is cut off is given up after ``patience`` seconds."""
        ranks = [self._called[rank] for rank in self._ranks]
        for one in ranks:
            one.patience = patience
        self._patience = patience
        if not self._encrypted:  # a connection on this machine ends with one of its ends
            self.close()
        return ranks

    def close(self) -> None:
        """Answer no further caller."""
        self._closed.set()
        with contextlib.suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill the ranks that have called, of a run that does not begin."""
        self.close()
        with self._news:  # from here on none is added
            self._ended, called = True, [*self._called.values()]
        for one in called:
            _end(one)

    def _serve(self) -> None:
        """Answer agents that call, and that call again; give up those that do not in time."""
        with self._listener, self._doorkeeper:
            while not self._closed.is_set():
                self._listener.settimeout(SOON if self._doorkeeper.asks else LOOK)
                with contextlib.suppress(OSError):  # no caller; or it is closed
                    self._doorkeeper.ask(*self._listener.accept())
                for hello, agent in self._doorkeeper.known():
                    self._admit(hello, agent)
                if self._patience is None:
                    self._greet()
                else:
                    self._look_after(self._patience)

    def _admit(self, hello: Mapping[str, Any], agent: Channel) -> None:
        """Take an agent that has shown the key: a new one, or one that calls again."""
        for one in self._called.values():
            if one.place.get("session") == hello.get("session"):
                return one.again(agent, hello)
        free = [rank for rank in self._ranks if rank not in self._called]
        if not free or "pid" not in hello:
            return agent.cut()
        rank = hello["rank"] if hello["rank"] in free else free[0]
        try:
            if "has" in hello:  # it calls again, and was never heard
                ipc.send(agent.socket, {"has": 0})
            one = RemoteRank(rank, hello, agent, self._encrypted)
        except (WorkbenchError, OSError):  # no descriptor is left: the agent calls again
            return agent.cut()
        with self._news:
            if self._ended:
                return _end(one)
            self._called[rank], self._progress = one, time.monotonic()
            self._news.notify_all()

    def _greet(self) -> None:
        """Tell agents that wait for others that the driver is there."""
        if time.monotonic() - self._greeted > ALIVE_S:
            self._greeted = time.monotonic()
            for one in self._called.values():
                one.ping()

    def _look_after(self, patience: float) -> None:
        if all(one.code is not None for one in self._called.values()):
            self.close()
        for one in self._called.values():
            if one.silent_for() > patience:
                one.give_up()


def _end(one: RemoteRank) -> None:
    one.signal(signal.SIGKILL)
    one.give_up()
