"""A rank that shares no memory with the driver, as the driver holds it: what its agent sends is
written where the collector and the supervisor read, in the driver's times.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.common import ipc, threads
from workbench.launchers.processes.channel import Channel
from workbench.launchers.processes.host_clock import HostClock
from workbench.launchers.processes.relay import IDLE, PERIOD_S, Room, Words, apply
from workbench.launchers.processes.session import Session
from workbench.recording.events import now
from workbench.shared_memory.agreed_iterations import GONE
from workbench.shared_memory.control_block import (
    AGREED,
    RANK_WORDS,
    RANKS,
    RUN_WORDS,
)
from workbench.shared_memory.segments import Segment, how_it_ended
from workbench.transports.peer_page import clock_identity

FIRST = 100  # exchanges of times with an agent on another host, before its rank begins
ASK_S = 0.1  # between two exchanges, while it runs
ALIVE_S = 0.4  # the same, where its clock is the driver's: then it says that both are there
ANSWER_S = 5.0  # for one of the first
SILENT_S = 2.0  # without a byte from another host: it is cut off
RETURN_S = 5.0  # for an agent to call again that has hung up; else it has ended
LEAST_PATIENCE = 10.0  # seconds that a host may be cut off, whatever the experiment's timeout is
GONE_S = 2.0  # for the last message to leave
LONGEST_LINE = 1 << 16  # bytes that are printed without an end of line
Coarser = Callable[[int, int, int], None]  # a rank, so many of its rows were folded into so many
MOMENTS = ("started_ns", "ended_ns")  # of a rank's report


class RemoteRank:
    """A rank below an agent (launcher.RankHandle). ``place``: where it is, as the agent says;
    ``silent``: its agent is gone, and has not told how it ended. ``lasting``: an agent on another
    host, which calls again when its connection ends, for ``patience`` seconds.
    """

    def __init__(
        self,
        rank: int,
        place: Mapping[str, Any],
        agent: Channel,
        lasting: bool = False,
        patience: float = LEAST_PATIENCE,
    ) -> None:
        self.rank, self.pid, self.place = rank, int(place["pid"]), place
        self.socket, self._inner = socket.socketpair()  # its messages, as if there were no agent
        self._frames = ipc.Frames()
        self.lasting, self.patience, self._owner = lasting, patience, os.getpid()
        self._session = Session(f"workbench rank {rank} elsewhere")
        self._session.join(agent, 0)
        self._words: Words | None = None
        self._trace: Segment | None = None
        self._room = Room()
        self._coarser: Coarser | None = None
        self._folded = [0, 0]
        self.clock = None if place.get("clock") == clock_identity() else HostClock()
        self._pongs = queue.SimpleQueue[int]()  # answers to the first pings
        self._code: int | None = None
        self._line = {1: bytearray(), 2: bytearray()}  # printed, by descriptor: an unfinished one
        self.silent, self.gone_at = False, 0.0
        self._given_up = self._left = False
        self._pinged = 0.0
        threads.start(self._listen, f"workbench rank {rank} elsewhere")

    @property
    def host(self) -> str:
        """The name of its host."""
        return str(self.place.get("host", ""))

    def silent_for(self) -> float:
        """Return for how many seconds nothing has come from its agent; 0: it is not awaited."""
        if self._code is not None or not self.lasting:
            return 0.0
        return time.monotonic() - self._session.heard_at

    def again(self, agent: Channel, hello: Mapping[str, Any]) -> None:
        """Go on over a new connection, which its agent has called for."""
        if self._code is not None:
            with contextlib.suppress(OSError):
                ipc.send(agent.socket, {"has": self._session.has, "over": True})
            return agent.cut()
        # The answer is sent once the old connection counts no more: the agent ends that.
        self._session.join(agent, int(hello.get("has", 0)), answers=True)

    @property
    def cut_off(self) -> bool:
        """Whether nothing comes from its agent any more, and it has not told how it ended."""
        return self._given_up or self.silent_for() > SILENT_S

    def give_up(self) -> None:
        """Wait for its agent no longer."""
        self._given_up = self._given_up or self.cut_off
        self._session.close()

    def collected_by(self, drain: Callable[[], object], coarser: Coarser) -> None:
        """Have what its agent has kept written no faster than ``drain`` reads it."""
        self._room.drain, self._coarser = drain, coarser

    @property
    def code(self) -> int | None:
        return self._code

    @property
    def end(self) -> str:
        return how_it_ended(self._code or 0)

    def order(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send it a message; what the driver's memory says goes along, and is relayed from now."""
        if self._words is None and self._code is None:
            self._compare_clocks()
            control, trace = (Segment(os.dup(fd), os.fstat(fd).st_size) for fd in fds[:2])
            self._trace, self._words = trace, Words(control.words)
            order = {"order": message, "ranks": control.words[RANKS], "patience": self.patience}
            self._tell(order, self._words.all())
        else:
            self._tell({"order": message})

    def hear(self) -> list[tuple[dict[str, Any], bytearray]] | None:
        """Return its messages that have come; None: there will be no more."""
        try:
            return self._frames.receive(self.socket)
        except (OSError, ValueError):
            return None

    def signal(self, number: signal.Signals) -> None:
        if self._code is None:
            self._tell({"signal": int(number)})

    def close(self) -> None:
        """Close the connection; the rank ends when it reads that."""
        self._tell({"hang_up": True})

    def _tell(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        if os.getpid() == self._owner:
            self._session.send(message, payload)

    def relay(self) -> None:
        """Send the agent what the driver has changed, and now and then that it is there."""
        if self._left:
            return
        words = self._words
        if words is not None and self._code is None and (changes := words.changes()):
            self._tell({"words": changes})
        moment = time.monotonic()
        if moment - self._pinged > (ALIVE_S if self.clock is None else ASK_S):
            self._pinged = moment
            self.ping()

    def ping(self) -> None:
        """Tell the agent that the driver is there, and ask for its time."""
        if os.getpid() == self._owner:
            self._session.send({"ping": now()}, passing=True)

    def _compare_clocks(self) -> None:
        """Exchange times with the agent before the rank has anything to record; one that does not
        answer is compared later.
        """
        while not self._pongs.empty():  # from when it waited for others
            self._pongs.get()
        for _ in range(FIRST if self.clock is not None else 0):
            self.ping()
            try:
                self._pongs.get(timeout=ANSWER_S)
            except queue.Empty:
                return

    def _listen(self) -> None:
        """Take what the agent sends, until the rank has ended or the agent is gone."""
        code: int | None = None
        with contextlib.suppress(OSError, ValueError):
            while code is None:
                messages = self._session.receive()
                if messages is None and not self._comes_back():
                    break
                for body, payload in messages or ():
                    if "ended" in body:
                        code = int(body["ended"])
                        break
                    self._take(body, payload)
        for descriptor, line in self._line.items():
            _write(descriptor, line)
        self.gone_at = time.monotonic()
        if self._words is not None:
            self._words.apply([[self._word(AGREED), GONE]])
        self.silent, self._code = code is None, -signal.SIGKILL if code is None else code
        self._words = self._trace = None  # a run that is kept keeps no memory of its ranks
        self._inner.close()
        if code is None:
            self.leave()
            return
        self._session.send({}, passing=True)  # that all of it has come
        while self._session.receive() is not None:  # it may stay
            pass

    def leave(self) -> None:
        """Hang up on the agent, which may have stayed."""
        self._left = True
        if self.cut_off:
            self._session.close()
        else:
            self._session.finish(GONE_S)

    def _comes_back(self) -> bool:
        """Wait for an agent on another host that has hung up to call again: one that has given up a
        call, because the driver was too busy to answer, is there and does.
        """
        seconds = self.patience if self._session.given_up else RETURN_S
        return self.lasting and self._session.wait_for_stream(seconds)

    def _take(self, body: dict[str, Any], payload: bytearray) -> None:
        if "rank" in body:
            ipc.send(self._inner, self._by_our_clock(body["rank"]), memoryview(payload))
        elif "words" in body and self._words is not None:
            self._words.apply(body["words"])
        elif "trace" in body and self._trace is not None:
            apply(self._trace.memory, body["trace"], memoryview(payload), self.clock, self._room)
            folded = [int(count) for count in body.get("folded", (0, 0))]
            if folded != self._folded and self._coarser is not None:
                self._folded = folded
                self._coarser(self.rank, *folded)
        elif "pong" in body and self.clock is not None:
            sent, arrived, left = map(int, body["pong"])
            self.clock.add(sent, arrived, left, now())
            self._pongs.put(self.clock.exchanges)
        elif "printed" in body:
            self._print(1 if body["printed"] == 1 else 2, bytes(payload))

    def _word(self, word: int) -> int:
        """Return the place of a word of this rank."""
        return RUN_WORDS + self.rank * RANK_WORDS + word

    def _by_our_clock(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a rank's message with its moments by the driver's clock."""
        if self.clock is None:
            return message
        moments = {name: self.clock.here(message[name]) for name in MOMENTS if message.get(name)}
        return {**message, **moments}

    def _print(self, descriptor: int, data: bytes) -> None:
        """Print what the rank has printed, in whole lines, so that ranks do not mix in one."""
        line = self._line[descriptor]
        line += data
        end = max(line.rfind(b"\n"), line.rfind(b"\r")) + 1
        if end or len(line) > LONGEST_LINE:
            _write(descriptor, line[: end or None])
            del line[: end or None]


def relay(ranks: Sequence[RemoteRank], over: threading.Event) -> None:
    """Relay what the driver changes to all agents, until the run is over."""
    pause = PERIOD_S
    while not over.wait(pause):
        begin = time.monotonic()
        for one in ranks:
            one.relay()
        pause = max(PERIOD_S, IDLE * (time.monotonic() - begin))


def _write(descriptor: int, data: bytearray) -> None:
    """Print where a rank of this machine would have printed by itself."""
    with contextlib.suppress(OSError):  # no process listens there any more
        while data:
            del data[: os.write(descriptor, data)]
