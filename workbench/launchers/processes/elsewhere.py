"""Launchers whose ranks share no memory with the driver: each rank has an agent that calls here.

    class Launcher(AgentLauncher):
        def start(self, count: int, environment: dict[str, str]) -> None:
            ...  # so many times `python -m workbench.launchers.processes.agent`, with it

That is all of a launcher: mpiexec, ssh, sbatch start processes, and the rest is here. Options of a
launcher are the fields of a frozen dataclass ``Config`` in its file; ``self.config`` has them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from workbench.common import threads
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.channel import Channel, Identity, leaves_this_machine
from workbench.launchers.processes.doorkeeper import Doorkeeper
from workbench.launchers.processes.launcher import MeetingPlace, RankHandle
from workbench.launchers.processes.pool import meeting_place, must_own
from workbench.launchers.processes.remote_rank import LEAST_PATIENCE, RemoteRank

# Seconds until those who have called are looked at again: where one is being asked, and else.
SOON, LOOK = 0.002, 0.05


class AgentLauncher:
    """A launcher that starts agents: a subclass says how.

    ``host``: the driver's address, as agents reach it; ``patience``: seconds for all to call.
    ``config``: its options, where its file has a ``Config``; ``threads``: of each rank.
    """

    host = "127.0.0.1"
    patience = 120.0
    config: Any = None
    threads = 1

    def __init__(self) -> None:
        self._owner, self._ranks = os.getpid(), list[RemoteRank]()
        self._bears = LEAST_PATIENCE  # seconds that a host may be cut off
        self._drain: Callable[[], object] | None = None
        self._door: tuple[socket.socket, Doorkeeper] | None = None  # at which agents call
        self._closed = threading.Event()

    def collected_by(self, drain: Callable[[], object]) -> None:
        """Have records that come late written no faster than ``drain`` reads them."""
        self._drain = drain

    def bear(self, seconds: float) -> None:
        """Wait so many seconds for a host that is cut off, until its ranks are lost."""
        self._bears = max(seconds, LEAST_PATIENCE)

    def configure(self, config: Any, threads: int) -> None:
        """Take the options of an experiment, before anything is started."""
        self.config, self.threads = config, threads
        self.host = getattr(config, "address", "") or self.host

    def words(self, count: int) -> str:
        """Return what starts this number of ranks, such as a command; "": nothing to say."""
        return ""

    def start(self, count: int, environment: dict[str, str]) -> None:
        """Start this number of agents, with these environment variables besides their own."""
        raise NotImplementedError

    def failure(self) -> str:
        """Return why no agent will call any more, in words; "": there is no reason."""
        return ""

    alive, end = True, ""

    @property
    def encrypted(self) -> bool:
        """Whether agents call over TLS: wherever they may be on another host."""
        return leaves_this_machine(self.host)

    def meeting_place(self, ranks: int) -> MeetingPlace:
        """Return a store on the driver's address."""
        place: MeetingPlace = meeting_place(ranks, self.host)
        return place

    def begin(self, ranks: Sequence[int]) -> None:
        """Start an agent for each rank."""
        doorkeeper = Doorkeeper(Identity.make() if self.encrypted else None)
        listener = socket.create_server((self.host, 0), backlog=len(ranks))
        call = f"{self.host}:{listener.getsockname()[1]}/{doorkeeper.proof}"
        self._door = listener, doorkeeper
        try:
            self.start(len(ranks), self._variables(call))
        except BaseException:
            self.close(0)
            raise

    def take(self, ranks: Sequence[int]) -> Sequence[RankHandle]:
        """Wait until the agents of all ranks have called."""
        if self._door is None:
            self.begin(ranks)
        assert self._door is not None
        listener, doorkeeper = self._door
        called: dict[int, RemoteRank] = {}
        try:
            self._wait(listener, doorkeeper, [*ranks], called)
        except BaseException:
            for one in called.values():
                one.signal(signal.SIGKILL)
                one.give_up()
            self.close(0)
            raise
        self._ranks, self._door = [called[rank] for rank in ranks], None
        if self.encrypted:
            watch = partial(self._keep, listener, doorkeeper, self._ranks)
            threads.start(watch, "workbench hosts", self._closed.set)
        else:
            doorkeeper.__exit__()
            listener.close()
        return self._ranks

    def _keep(
        self, listener: socket.socket, doorkeeper: Doorkeeper, ranks: Sequence[RemoteRank]
    ) -> None:
        """Answer agents that call again, until the run is over; give up those that do not in
        time.
        """
        listener.settimeout(LOOK)
        with listener, doorkeeper:
            while not self._closed.is_set() and any(one.code is None for one in ranks):
                with contextlib.suppress(TimeoutError):
                    doorkeeper.ask(*listener.accept())
                for hello, agent in doorkeeper.known():
                    _go_on(ranks, hello, agent)
                for one in ranks:
                    if one.silent_for() > self._bears:
                        one.give_up()
            if self._closed.is_set():
                for one in ranks:
                    one.give_up()

    def cut_off(self) -> dict[int, str]:
        """Return the ranks of which nothing has come for a while, and their hosts."""
        return {one.rank: one.host for one in self._ranks if one.cut_off}

    def _variables(self, call: str) -> dict[str, str]:
        """Return the environment variables of an agent that calls there."""
        variables = {"WORKBENCH_AGENT": call, "OMP_NUM_THREADS": str(self.threads)}
        if self.host.startswith("127."):  # ranks of one host talk over loopback alone
            variables["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        return variables

    def facts(self) -> dict[str, str]:
        """Return what the run keeps of how its ranks were started."""
        places = {
            one.rank: {key: one.place.get(key) for key in ("host", "cores", "threads")}
            for one in self._ranks
        }
        clocks = {one.rank: one.clock.facts() for one in self._ranks if one.clock is not None}
        return {
            "launch": json.dumps({"command": self.words(len(places)), "ranks": places}),
            **({"clocks": json.dumps(clocks)} if clocks else {}),
        }

    def _wait(
        self,
        listener: socket.socket,
        doorkeeper: Doorkeeper,
        ranks: list[int],
        called: dict[int, RemoteRank],
    ) -> None:
        deadline = time.monotonic() + self.patience
        while len(called) < len(ranks):
            listener.settimeout(SOON if doorkeeper.asks else LOOK)
            with contextlib.suppress(TimeoutError):
                doorkeeper.ask(*listener.accept())
            for hello, agent in doorkeeper.known():
                if "again" in hello:  # it has heard nothing while the others were on their way
                    _go_on(called.values(), hello, agent)
                elif free := [rank for rank in ranks if rank not in called]:
                    rank = hello["rank"] if hello["rank"] in free else free[0]
                    called[rank] = RemoteRank(rank, hello, agent, self.encrypted, self._bears)
                    if self._drain is not None:
                        called[rank].collected_by(self._drain)
                else:
                    agent.cut()
            if len(called) == len(ranks):
                return
            why = self.failure() or ("" if time.monotonic() < deadline else "no more came")
            if why:
                raise WorkbenchError(
                    f"{len(called)} of {len(ranks)} ranks have called the driver within "
                    f"{self.patience:.0f} s: {why}"
                )

    def must_be_ours(self, what: str) -> None:
        """Raise WorkbenchError in a fork of the driver."""
        must_own(self._owner, what)

    def close(self, ranks: int) -> None:
        """Keep nothing for the next run."""
        self._closed.set()
        if self._door is not None:
            listener, doorkeeper = self._door
            doorkeeper.__exit__()
            listener.close()
            self._door = None
        for one in self._ranks:
            one.leave()
            one.socket.close()
        self._ranks = []


def _go_on(ranks: Iterable[RemoteRank], hello: Mapping[str, Any], agent: Channel) -> None:
    """Have the rank go on over the connection of its agent, which calls again; hang up on one that
    is not known.
    """
    for one in ranks:
        if hello.get("again") and one.place.get("session") == hello["again"]:
            return one.again(agent, hello)
    agent.cut()
