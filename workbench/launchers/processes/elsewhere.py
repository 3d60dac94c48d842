"""Launchers whose ranks share no memory with the driver: each rank has an agent that calls here.

    class Launcher(AgentLauncher):
        def start(self, count: int, environment: dict[str, str]) -> None:
            ...  # so many times `python -m workbench.launchers.processes.agent`, with it

That is all of a launcher: mpiexec, ssh, sbatch start processes, and the rest is here. Options of a
launcher are the fields of a frozen dataclass ``Config`` in its file; ``self.config`` has them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from workbench.common import threads
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.channel import leaves_this_machine
from workbench.launchers.processes.launcher import MeetingPlace, RankHandle
from workbench.launchers.processes.pool import meeting_place, must_own
from workbench.launchers.processes.reception import LOOK, Reception
from workbench.launchers.processes.remote_rank import LEAST_PATIENCE, Coarser, RemoteRank, relay


class AgentLauncher:
    """A launcher that starts agents: a subclass says how.

    ``host``: the driver's address, as agents reach it; ``patience``: seconds between two that call.
    ``config``: its options, where its file has a ``Config``; ``threads``: of each rank.
    """

    host = "127.0.0.1"
    patience = 120.0
    config: Any = None
    threads = 1

    def __init__(self) -> None:
        self._owner, self._ranks = os.getpid(), list[RemoteRank]()
        self._bears = LEAST_PATIENCE  # seconds that a host may be cut off
        self._collected: tuple[Callable[[], object], Coarser] | None = None
        self._over = threading.Event()
        self._reception: Reception | None = None  # at which agents call

    def collected_by(self, drain: Callable[[], object], coarser: Coarser) -> None:
        """Have records that come late written no faster than ``drain`` reads them; where they are
        coarser, ``coarser`` counts them.
        """
        self._collected = drain, coarser

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
        """Start an agent for each rank; they are answered while the last ones are being started."""
        reception = self._reception = Reception(self.host, ranks, self.encrypted)
        try:
            self.start(len(ranks), self._variables(reception.call))
        except BaseException:
            reception.end()
            self.close(0)
            raise

    def take(self, ranks: Sequence[int]) -> Sequence[RankHandle]:
        """Wait until the agents of all ranks have called."""
        if self._reception is None:
            self.begin(ranks)
        reception = self._reception
        assert reception is not None
        since = time.monotonic()
        try:
            while not reception.wait(LOOK) or self._over.is_set():
                if self._over.is_set():
                    raise WorkbenchError("the run was ended while its ranks were being started")
                silent = reception.silent_for(since) >= self.patience
                if why := self.failure() or ("no more came" if silent else ""):
                    raise WorkbenchError(
                        f"{reception.called} of {len(ranks)} ranks have called the driver, and no "
                        f"other within {self.patience:.0f} s: {why}"
                    )
        except BaseException:
            reception.end()
            self.close(0)
            raise
        self._ranks = reception.take(self._bears)
        for one in self._ranks:
            if self._collected is not None:
                one.collected_by(*self._collected)
        threads.start(partial(relay, self._ranks, self._over), "workbench words", self._over.set)
        return self._ranks

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

    def must_be_ours(self, what: str) -> None:
        """Raise WorkbenchError in a fork of the driver."""
        must_own(self._owner, what)

    def close(self, ranks: int) -> None:
        """Keep nothing for the next run."""
        if self._reception is not None:
            self._reception.close()
            self._reception = None
        self._over.set()
        for one in self._ranks:
            one.leave()
            one.socket.close()
        self._ranks = []
