"""The agent of a rank that shares no memory with its driver: ``python -m
workbench.launchers.processes.agent``, started by whatever starts processes where the rank is to be.

    driver ── a stream ── agent ─ rank

It finds the driver by WORKBENCH_AGENT ("host:port/key", and from another host the fingerprint of
the driver's certificate: channel.py), forks the rank's process, gives it a control block and a
trace of its own, and relays: control words and records (relay.py), signals, and what the rank
prints. When the driver goes, it ends the rank; when the agent is killed, the kernel kills the rank.

Where its host is cut off from the driver's, the rank goes on. The agent keeps what there is to send
(at most session.MOST_KEPT), and calls again until it is answered, or its ``timeout`` has passed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import secrets
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

from workbench.common import descriptors, environment, guardian, ipc, threads
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.channel import Channel, connect
from workbench.launchers.processes.coarser import level
from workbench.launchers.processes.relay import IDLE, PERIOD_S, TraceReader, Words
from workbench.launchers.processes.session import Session
from workbench.process_group.job_variables import place_in_job
from workbench.recording.events import now
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory.agreed_iterations import agreed_iterations
from workbench.shared_memory.control_block import AGREED, Control
from workbench.transports.mpi_job import ranks_by_mpiexec
from workbench.transports.peer_page import clock_identity

CALL = 30.0  # seconds for the driver to answer an agent that calls
SILENT = 2.0  # seconds without a byte from the driver, at first: the agent calls again
AGAIN = 0.25  # seconds between two tries to call again
REACH = 2.0  # seconds for a connection to be there
ANSWER = 5.0  # seconds for the driver to answer an agent that calls again, at first
SLOWER = 2.0  # times: how much longer an agent waits once it has called a driver that was only busy
FIRST_PATIENCE = 30.0  # seconds to call again, until the driver says how long
LONGEST = 0.25  # seconds between two looks at what has changed, where cores are busy
LAST = 2.0  # seconds for the last bytes to leave
AT_ONCE = 1 << 16  # bytes of what a rank prints that travel together


class Driver:
    """The way to the driver. ``fingerprint``: of its certificate; "": it is on this machine, and a
    connection that ends is its end.

    A driver whose cores are busy answers late, like one that cannot be reached, and each call makes
    it busier. So an agent waits longer each time that the host was reached at the first try.
    """

    def __init__(self, host: str, port: int, key: str, fingerprint: str) -> None:
        self._at, self._key, self._fingerprint = (host, port), key, fingerprint
        self._name = secrets.token_hex(8)  # by which it knows this agent when that calls again
        self.session = Session("workbench agent")
        self.patience = FIRST_PATIENCE
        self._silent, self._answer = SILENT, ANSWER
        self._hello: dict[str, Any] = {}  # which rank calls
        self.gone = False  # it has ended, or cannot be reached for longer than we wait
        self._calling: threading.Thread | None = None

    def greet(self, sock: socket.socket, pid: int) -> None:
        """Send the driver the rank's number, if there is one, its process and its place."""
        place = place_in_job(os.environ)
        self._hello = {
            "key": self._key,
            "session": self._name,
            "rank": int(os.environ.get("RANK", -1 if place is None else place.rank)),
            "pid": pid,
            "host": environment.text("WORKBENCH_HOST") or platform.node(),
            "clock": clock_identity(),
            "cores": sorted(os.sched_getaffinity(0)),
            "threads": os.environ.get("OMP_NUM_THREADS", ""),
        }
        try:
            channel = self._channel(sock, CALL)
            ipc.send(channel.socket, self._hello)
            self.session.join(channel, 0)
        except (ConnectionError, TimeoutError):  # hung up on, as where many call
            self.session.given_up = True

    def stay_in_touch(self) -> None:
        """Call again where the connection has ended, or nothing comes through it any more."""
        session = self.session
        silent = time.monotonic() - session.heard_at
        hears = not self._fingerprint or silent < self._silent
        if hears and session.flows:
            return
        # On this machine a connection ends with the driver, or it has never listened to this one.
        if silent > self.patience or not (self._fingerprint or session.given_up):
            self.gone = True
        elif self._calling is None or not self._calling.is_alive():
            # The old connection stays until there is a new one: its end would be this agent's.
            self._calling = threads.start(self._call, "workbench agent calls", session.close)

    def _call(self) -> None:
        """Call until the driver answers, or has ended."""
        session, tries = self.session, 0
        silent_from = session.heard_at
        while time.monotonic() - silent_from < self.patience:
            if session.flows and session.heard_at > silent_from:
                return
            tries += 1
            try:
                sock = socket.create_connection(self._at, timeout=REACH)
                if tries == 1 and session.channel is not None:
                    self._silent = self._longer(self._silent)
                channel, answer = self._ask(sock)
            except (ConnectionRefusedError, WorkbenchError):
                break  # no driver listens there any more, or another program does
            except OSError:
                answer = None
            if answer is None:
                time.sleep(AGAIN)
            elif answer.get("over"):
                break
            else:
                return session.join(channel, int(answer.get("has", 0)))
        self.gone = True

    def _ask(self, sock: socket.socket) -> tuple[Channel, dict[str, Any] | None]:
        """Call over this connection. Returns the channel and the driver's answer; None: it has hung
        up. Raises OSError where there is none in time.
        """
        try:
            channel = self._channel(sock, self._answer)
            # All of it: the driver may have hung up before it had read that.
            ipc.send(channel.socket, {**self._hello, "has": self.session.has})
            channel.socket.settimeout(self._answer)
            answer = ipc.receive(channel.socket)
        except TimeoutError:
            self._answer = self._longer(self._answer)
            raise
        return channel, answer[0] if answer is not None else None

    def _longer(self, seconds: float) -> float:
        return max(seconds, min(SLOWER * seconds, self.patience / 4))

    def _channel(self, sock: socket.socket, seconds: float) -> Channel:
        """Return the encrypted end of a connection, where it is to be."""
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._fingerprint:
            return Channel(sock)
        try:
            return connect(sock, self._fingerprint, seconds)
        except BaseException:
            sock.close()
            raise


class Agent:
    """``driver``: the way to it; ``rank``: the rank's end of its messages; ``printed``: the ends of
    what it prints, by descriptor.
    """

    def __init__(
        self, driver: Driver, rank: socket.socket, pid: int, printed: dict[int, int]
    ) -> None:
        self._driver, self._session = driver, driver.session
        self._rank, self._pid, self._frames = rank, pid, ipc.Frames()
        self._printed = printed
        self._unprinted = 0  # bytes that there was no room for
        self._code: int | None = None
        self._words: Words | None = None
        self._control: Control | None = None
        self._number = -1  # of the rank
        self._trace: TraceReader | None = None
        self._due = 0.0  # when what has changed is sent again
        self._level = 0  # of detail: coarser.py
        self._kept: list[Any] = []  # the memory that the rank has too

    def serve(self) -> bool:
        """Relay until the rank has ended, or the driver has gone; tell how it ended. Returns
        whether the driver knows.
        """
        heard: set[Any] = {self._rank}
        while not self._ended():
            readable = self._wait([*heard, *self._printed])
            if self._driver.gone:
                os.kill(self._pid, signal.SIGKILL)  # our child: its number is not reused yet
                break
            if self._rank in readable and not self._pass_up():
                heard.discard(self._rank)
            self._pass_on(readable)
            if time.monotonic() >= self._due:
                self._relay()
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        while self._rank in heard and select.select([self._rank], [], [], 0)[0]:
            if not self._pass_up():
                break
        while last := select.select([*self._printed], [], [], 0)[0]:
            self._pass_on(last)
        self._relay()
        guardian.end_children(guardian.PATIENCE)
        self._session.send({"ended": self._code})
        while not self._session.settled and not self._driver.gone:
            self._wait([])
        settled = self._session.settled
        if ranks_by_mpiexec():
            self._stay()
        return settled

    def _stay(self) -> None:
        """Stay until the driver hangs up: of a rank that has begun MPI, mpiexec would end all
        others with this process, and they may still have to say how they end.
        """
        while not self._driver.gone:
            self._wait([])

    def _wait(self, others: list[Any]) -> list[Any]:
        """Wait until one of these has something, for a period at most; do what the driver asks for
        meanwhile. Returns those that have.
        """
        channel = self._session.channel
        own = [] if channel is None else [channel.socket]
        readable, _, _ = select.select([*own, *others], [], [], PERIOD_S)
        if own and own[0] in readable:
            arrived = now()
            for body, payload in self._session.receive() or ():
                self._obey(body, payload, arrived)
        self._driver.stay_in_touch()
        return readable

    def _ended(self) -> bool:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def _obey(self, body: dict[str, Any], payload: bytearray, arrived: int) -> None:
        """Do what the driver asks for, which has ``arrived`` at that moment."""
        if "order" in body:
            self._driver.patience = float(body.get("patience", FIRST_PATIENCE))
            self._order(body["order"], body.get("ranks", 0), payload)
        elif "words" in body and self._words is not None:
            self._words.apply(body["words"])
            self._note_agreed()
        elif "ping" in body:
            self._session.send({"pong": [body["ping"], arrived, now()]}, passing=True)
        elif "signal" in body and self._code is None:
            os.kill(self._pid, signal.Signals(body["signal"]))
        elif "hang_up" in body:
            with contextlib.suppress(OSError):
                self._rank.shutdown(socket.SHUT_RDWR)

    def _order(self, order: dict[str, Any], ranks: int, words: bytearray) -> None:
        """Give the rank its order, the first time with memory of its own."""
        if self._words is not None:
            return ipc.send(self._rank, order)
        control, trace = Control.create(ranks), trace_segment("a rank")
        self._words, self._trace = Words(control.words), TraceReader(trace.memory)
        self._words.begin(words)
        self._control, self._number = control, int(order["rank"])
        self._note_agreed()
        stacks = os.memfd_create("workbench stacks", os.MFD_CLOEXEC)
        self._kept = [control, trace]
        news = {"environment": {}, "files": descriptors.limit()}
        fds = [control.segment.fd, trace.fd, stacks]
        ipc.send(self._rank, {**order, **news}, fds=fds)
        os.close(stacks)

    def _note_agreed(self) -> None:
        """Tell the others which boundaries the rank can know of (rank/boundaries.py)."""
        if self._control is not None:
            self._control.set_rank(self._number, AGREED, agreed_iterations(self._control.words))

    def _pass_up(self) -> bool:
        """Pass on what the rank has said; False: there will be no more."""
        try:
            messages = self._frames.receive(self._rank)
        except OSError:
            messages = None
        for body, payload in messages or ():
            self._session.send({"rank": body}, memoryview(payload))
        return messages is not None

    def _pass_on(self, readable: list[Any]) -> None:
        """Send the driver what the rank has printed; it never waits because of that."""
        for fd in [one for one in readable if one in self._printed]:
            if data := os.read(fd, AT_ONCE):
                if self._session.full:
                    self._unprinted += len(data)
                    continue
                if self._unprinted:
                    words = f"[{self._unprinted:,} bytes printed here while the host was cut off]\n"
                    data, self._unprinted = words.encode() + data, 0
                self._session.send({"printed": self._printed[fd]}, data)
            else:
                del self._printed[fd]
                os.close(fd)

    def _relay(self) -> None:
        """Send the driver what has changed: first records, then words that may say that it is
        over.
        """
        if self._words is None or self._trace is None or self._session.full:
            return  # where the ring laps us meanwhile, the driver counts what is not there
        begin = time.monotonic()
        changes = self._words.changes()
        session = self._session
        if begin - session.heard_at < SILENT:  # what is recorded while it is cut off stays whole
            self._level = level(self._level, session.waiting, session.behind)
        parts, data = self._trace.read(self._level)
        if parts:
            session.send({"trace": parts, "folded": self._trace.folded}, data)
        if changes:
            self._session.send({"words": changes})
        end = time.monotonic()
        self._due = end + max(PERIOD_S, min(IDLE * (end - begin), LONGEST))


def main() -> int:
    """Find the driver, fork the rank and serve it. In the rank's process: be the rank.

    Returns the exit code: an agent's is 0 where it could tell how its rank ended, since what has
    started it (mpiexec, torchrun) would end the other ranks for any other one, and that is for the
    driver to decide.
    """
    if sys.argv[1:]:  # the process that started it, where only that is ended with its job
        guardian.end_with(int(sys.argv[1]))
    address, key, fingerprint = (environment.text("WORKBENCH_AGENT") + "///").split("/")[:3]
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and key):
        raise WorkbenchError(
            "an agent is started by a launcher, with "
            "WORKBENCH_AGENT=host:port/key[/fingerprint]; there is "
            f"{environment.text('WORKBENCH_AGENT') or 'none'!r}"
        )
    del os.environ["WORKBENCH_AGENT"]  # the rank has no use for the key
    sock = socket.create_connection((host, int(port)), timeout=CALL)
    guardian.adopt()
    mine, theirs = socket.socketpair()
    pipes = {os.pipe(): descriptor for descriptor in (1, 2)}
    agent = os.getpid()
    # Before any thread: what has been imported here (numpy, pydantic) is shared, and torch is
    # imported by the rank, beside the agent's first messages.
    pid = os.fork()
    if pid == 0:
        return _be_the_rank(agent, theirs, (sock, mine), pipes)
    theirs.close()
    printed = {}
    for (reading, writing), descriptor in pipes.items():
        os.close(writing)
        printed[reading] = descriptor
    driver = Driver(host, int(port), key, fingerprint)
    try:
        driver.greet(sock, pid)
    except BaseException:
        guardian.end_children(0.0)
        raise
    known = Agent(driver, mine, pid, printed).serve()
    guardian.end_children(0.0)
    driver.session.finish(LAST)
    return 0 if known else 1


def _be_the_rank(
    agent: int,
    orders: socket.socket,
    others: tuple[socket.socket, ...],
    pipes: dict[tuple[int, int], int],
) -> int:
    """Be the rank whose orders come from that socket. Returns its exit code."""
    guardian.end_with(agent)
    guardian.adopt()
    for one in others:
        one.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for (reading, writing), descriptor in pipes.items():
        os.dup2(writing, descriptor)
        os.close(reading)
        os.close(writing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # as a user sees it
    gc.disable()  # all of these objects stay: looking them through takes a tenth of the import
    from workbench.rank.main import main as rank_main

    gc.freeze()
    gc.enable()
    return rank_main(orders)


if __name__ == "__main__":
    sys.exit(main())
