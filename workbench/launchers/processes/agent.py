"""The agent of a rank that shares no memory with its driver: ``python -m
workbench.launchers.processes.agent``, started by whatever starts processes where the rank is to be.

    driver ── a stream ── agent ─ rank

It finds the driver by WORKBENCH_AGENT ("host:port/key", and from another host the fingerprint of
the driver's certificate: channel.py), forks the rank's process, gives it a
control block and a trace of its own, and relays: control words and records (relay.py), signals, and
what the rank prints. When the driver goes, it ends the rank and whatever that has left; and when
the agent is killed, the kernel kills the rank.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import signal
import socket
import sys
from typing import Any

from workbench.common import descriptors, environment, ipc
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes import guardian
from workbench.launchers.processes.channel import Channel, connect
from workbench.launchers.processes.relay import PERIOD_S, TraceReader, Words
from workbench.process_group.job_variables import place_in_job
from workbench.recording.events import now
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory.control_block import Control
from workbench.transports.mpi_job import ranks_by_mpiexec
from workbench.transports.peer_page import clock_identity

CALL = 30.0  # seconds for the driver to answer an agent that calls
AT_ONCE = 1 << 16  # bytes of what a rank prints that travel together


class Agent:
    """``driver``: the stream to the driver; ``rank``: the rank's end of its messages; ``printed``:
    the ends of what it prints, by descriptor.
    """

    def __init__(
        self, driver: socket.socket, rank: socket.socket, pid: int, printed: dict[int, int]
    ) -> None:
        self._driver, self._rank, self._pid = driver, rank, pid
        self._printed = printed
        self._code: int | None = None
        self._words: Words | None = None
        self._trace: TraceReader | None = None
        self._kept: list[Any] = []  # the memory that the rank has too

    def greet(self, key: str) -> None:
        """Tell the driver who calls: the rank's number, if there is one, its process, its place."""
        place = place_in_job(os.environ)
        hello = {
            "key": key,
            "rank": int(os.environ.get("RANK", -1 if place is None else place.rank)),
            "pid": self._pid,
            "host": platform.node(),
            "clock": clock_identity(),
            "cores": sorted(os.sched_getaffinity(0)),
            "threads": os.environ.get("OMP_NUM_THREADS", ""),
        }
        ipc.send(self._driver, hello)

    def serve(self) -> None:
        """Relay until the rank has ended, or the driver has gone; tell how it ended."""
        heard: set[Any] = {self._driver, self._rank}
        while not self._ended():
            readable, _, _ = select.select([*heard, *self._printed], [], [], PERIOD_S)
            if self._driver in readable and not self._obey(now()):
                os.kill(self._pid, signal.SIGKILL)  # a child of ours: nobody else's number yet
                break
            if self._rank in readable and not self._pass_up():
                heard.discard(self._rank)
            self._pass_on(readable)
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
        ipc.send(self._driver, {"ended": self._code})
        if ranks_by_mpiexec():
            self._stay()

    def _stay(self) -> None:
        """Stay until the driver hangs up: of a rank that has begun MPI, mpiexec would end all
        others with this process, and they may still have to say how they end.
        """
        with contextlib.suppress(OSError):
            while ipc.receive(self._driver) is not None:
                pass

    def _ended(self) -> bool:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def _obey(self, arrived: int) -> bool:
        """Do what the driver asks for, which has ``arrived`` at that moment; False: it has gone."""
        message = ipc.receive(self._driver)
        if message is None:
            return False
        body, payload, _ = message
        if "order" in body:
            self._order(body["order"], body.get("ranks", 0), payload)
        elif "words" in body and self._words is not None:
            self._words.apply(body["words"])
        elif "ping" in body:
            ipc.send(self._driver, {"pong": [body["ping"], arrived, now()]})
        elif "signal" in body:
            os.kill(self._pid, signal.Signals(body["signal"]))
        elif "hang_up" in body:
            self._rank.shutdown(socket.SHUT_RDWR)
        return True

    def _order(self, order: dict[str, Any], ranks: int, words: bytearray) -> None:
        """Give the rank its order, the first time with memory of its own."""
        if self._words is not None:
            return ipc.send(self._rank, order)
        control, trace = Control.create(ranks), trace_segment("a rank")
        self._words, self._trace = Words(control.words), TraceReader(trace.memory)
        self._words.begin(words)
        stacks = os.memfd_create("workbench stacks", os.MFD_CLOEXEC)
        self._kept = [control, trace]
        news = {"environment": {}, "files": descriptors.limit()}
        fds = [control.segment.fd, trace.fd, stacks]
        ipc.send(self._rank, {**order, **news}, fds=fds)
        os.close(stacks)

    def _pass_up(self) -> bool:
        """Pass a message of the rank's on; False: there will be no more."""
        try:
            message = ipc.receive(self._rank)
        except OSError:
            message = None
        if message is not None:
            ipc.send(self._driver, {"rank": message[0]}, memoryview(message[1]))
        return message is not None

    def _pass_on(self, readable: list[Any]) -> None:
        """Send the driver what the rank has printed."""
        for fd in [one for one in readable if one in self._printed]:
            if data := os.read(fd, AT_ONCE):
                ipc.send(self._driver, {"printed": self._printed[fd]}, data)
            else:
                del self._printed[fd]
                os.close(fd)

    def _relay(self) -> None:
        """Send the driver what has changed: first records, then words that may say that it is
        over.
        """
        if self._words is None or self._trace is None:
            return
        changes = self._words.changes()
        parts, data = self._trace.read()
        if parts:
            ipc.send(self._driver, {"trace": parts}, data)
        if changes:
            ipc.send(self._driver, {"words": changes})


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
    del os.environ["WORKBENCH_AGENT"]  # the key is no business of the rank's
    driver = socket.create_connection((host, int(port)), timeout=CALL)
    driver.settimeout(None)
    driver.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    guardian.adopt()
    mine, theirs = socket.socketpair()
    pipes = {os.pipe(): descriptor for descriptor in (1, 2)}
    agent = os.getpid()
    # Before any thread: what has been imported here (numpy, pydantic) is shared, and torch is
    # imported by the rank, beside the agent's first messages.
    pid = os.fork()
    if pid == 0:
        return _be_the_rank(agent, theirs, (driver, mine), pipes)
    theirs.close()
    printed = {}
    for (reading, writing), descriptor in pipes.items():
        os.close(writing)
        printed[reading] = descriptor
    try:
        end = connect(driver, fingerprint, CALL) if fingerprint else Channel(driver)
    except BaseException:
        guardian.end_children(0.0)
        raise
    serving = Agent(end.socket, mine, pid, printed)
    with contextlib.suppress(ConnectionError):
        serving.greet(key)
        serving.serve()
        end.finish(CALL)
        return 0
    guardian.end_children(0.0)  # the driver has gone
    return 1


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
    from workbench.rank.main import main as rank_main

    return rank_main(orders)


if __name__ == "__main__":
    sys.exit(main())
