"""Launchers whose ranks share no memory with the driver: each rank has an agent that calls here.

    class Launcher(AgentLauncher):
        def start(self, count: int, environment: dict[str, str]) -> None:
            ...  # so many times `python -m workbench.launchers.processes.agent`, with it

That is all of a launcher: mpiexec, ssh, sbatch start processes, and the rest is here. Options of a
launcher are the fields of a frozen dataclass ``Config`` in its file; ``self.config`` has them.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.common import ipc, threads
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.launcher import MeetingPlace, RankHandle
from workbench.launchers.processes.pool import meeting_place, must_own
from workbench.launchers.processes.relay import PERIOD_S, Words, apply
from workbench.shared_memory.control_block import RANKS
from workbench.shared_memory.segments import Segment, how_it_ended

LONGEST_LINE = 1 << 16  # bytes that are printed without an end of line
HELLO = 5.0  # seconds for one that has called to say who it is


class RemoteRank:
    """A rank below an agent (launcher.RankHandle). ``place``: where it is, as the agent says;
    ``silent``: its agent is gone, and has not told how it ended.
    """

    def __init__(self, rank: int, place: Mapping[str, Any], agent: socket.socket) -> None:
        self.rank, self.pid, self.place = rank, int(place["pid"]), place
        self.socket, self._inner = socket.socketpair()  # its messages, as if there were no agent
        self._agent, self._owner = agent, os.getpid()
        self._words: Words | None = None
        self._trace: Segment | None = None
        self._code: int | None = None
        self._line = {1: bytearray(), 2: bytearray()}  # printed, by descriptor: an unfinished one
        self.silent, self.gone_at = False, 0.0
        threads.start(self._listen, f"workbench rank {rank} elsewhere")

    @property
    def code(self) -> int | None:
        return self._code

    @property
    def end(self) -> str:
        return how_it_ended(self._code or 0)

    def order(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send it a message; what the driver's memory says goes along, and is relayed from now."""
        if self._words is None:
            control, trace = (Segment(os.dup(fd), os.fstat(fd).st_size) for fd in fds[:2])
            self._trace, self._words = trace, Words(control.words)
            self._tell({"order": message, "ranks": control.words[RANKS]}, self._words.all())
            threads.start(self._relay, f"workbench words of rank {self.rank}")
        else:
            self._tell({"order": message})

    def hear(self) -> tuple[dict[str, Any], bytearray] | None:
        """Return its next message; None: there will be no more."""
        try:
            message = ipc.receive(self.socket)
        except (OSError, ValueError):
            return None
        return None if message is None else message[:2]

    def signal(self, number: signal.Signals) -> None:
        if self._code is None:
            self._tell({"signal": int(number)})

    def close(self) -> None:
        """Close the connection; the rank ends when it reads that."""
        self._tell({"hang_up": True})

    def _tell(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                ipc.send(self._agent, message, payload)

    def _relay(self) -> None:
        """Send the agent what the driver changes, until the rank has ended."""
        while self._code is None and self._words is not None:
            if changes := self._words.changes():
                self._tell({"words": changes})
            time.sleep(PERIOD_S)

    def _listen(self) -> None:
        """Take what the agent sends, until the rank has ended or the agent is gone."""
        code, silent = -signal.SIGKILL, True
        with contextlib.suppress(OSError, ValueError):
            while (message := ipc.receive(self._agent)) is not None:
                body, payload, _ = message
                if "ended" in body:
                    code, silent = int(body["ended"]), False
                    break
                self._take(body, payload)
        for descriptor, line in self._line.items():
            _write(descriptor, line)
        self.gone_at = time.monotonic()
        self.silent, self._code = silent, code
        self._inner.close()
        self._agent.close()

    def _take(self, body: dict[str, Any], payload: bytearray) -> None:
        if "rank" in body:
            ipc.send(self._inner, body["rank"], memoryview(payload))
        elif "words" in body and self._words is not None:
            self._words.apply(body["words"])
        elif "trace" in body and self._trace is not None:
            apply(self._trace.memory, body["trace"], memoryview(payload))
        elif "printed" in body:
            self._print(1 if body["printed"] == 1 else 2, bytes(payload))

    def _print(self, descriptor: int, data: bytes) -> None:
        """Print what the rank has printed, in whole lines, so that ranks do not mix in one."""
        line = self._line[descriptor]
        line += data
        end = max(line.rfind(b"\n"), line.rfind(b"\r")) + 1
        if end or len(line) > LONGEST_LINE:
            _write(descriptor, line[: end or None])
            del line[: end or None]


def _write(descriptor: int, data: bytearray) -> None:
    """Print where a rank of this machine would have printed by itself."""
    with contextlib.suppress(OSError):  # nobody listens there any more
        while data:
            del data[: os.write(descriptor, data)]


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

    def meeting_place(self, ranks: int) -> MeetingPlace:
        """Return a store on the driver's address."""
        place: MeetingPlace = meeting_place(ranks, self.host)
        return place

    def take(self, ranks: Sequence[int]) -> Sequence[RankHandle]:
        """Start an agent for each rank and wait until all have called."""
        key = secrets.token_hex(16)
        with socket.create_server((self.host, 0), backlog=len(ranks)) as listener:
            port = listener.getsockname()[1]
            self.start(len(ranks), self._variables(f"{self.host}:{port}/{key}"))
            called: dict[int, RemoteRank] = {}
            try:
                self._wait(listener, key, [*ranks], called)
            except BaseException:
                for one in called.values():
                    one.signal(signal.SIGKILL)
                self.close(0)
                raise
        self._ranks = [called[rank] for rank in ranks]
        return self._ranks

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
        return {"launch": json.dumps({"command": self.words(len(places)), "ranks": places})}

    def _wait(
        self, listener: socket.socket, key: str, ranks: list[int], called: dict[int, RemoteRank]
    ) -> None:
        listener.settimeout(0.1)
        deadline = time.monotonic() + self.patience
        while len(called) < len(ranks):
            with contextlib.suppress(TimeoutError):
                agent, _ = listener.accept()
                if (hello := _hello(agent, key)) is not None:
                    free = [rank for rank in ranks if rank not in called]
                    rank = hello["rank"] if hello["rank"] in free else free[0]
                    called[rank] = RemoteRank(rank, hello, agent)
                continue
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
        self._ranks = []


def _hello(agent: socket.socket, key: str) -> dict[str, Any] | None:
    """Return what an agent says of itself; None, and hung up, if it has not the key."""
    agent.settimeout(HELLO)
    with contextlib.suppress(OSError, ValueError):
        message = ipc.receive(agent)
        if message is not None and hmac.compare_digest(str(message[0].get("key")), key):
            agent.settimeout(None)
            agent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return message[0]
    agent.close()
    return None
