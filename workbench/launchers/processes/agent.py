"""The agent of a rank that shares no memory with its driver: ``python -m
workbench.launchers.processes.agent``, started by whatever starts processes where the rank is to be.

    driver ── a stream ── agent ─ rank

It finds the driver by WORKBENCH_AGENT ("host:port/key"), starts the rank's process as its child,
gives it a control block and a trace of its own, and relays (relay.py). When the driver goes, it
ends the rank and whatever that has left.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from typing import Any

from workbench.common import descriptors, environment, ipc
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes import guardian
from workbench.launchers.processes.relay import PERIOD_S, TraceReader, Words
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory.control_block import Control

RANK = (
    "import os, socket, sys\n"
    "from workbench.launchers.processes.guardian import end_with\n"
    "end_with({parent})\n"
    "from workbench.rank.main import main\n"
    "sys.exit(main(socket.socket(fileno={fd})))"
)


class Agent:
    """``driver``: the stream to the driver."""

    def __init__(self, driver: socket.socket, key: str) -> None:
        guardian.adopt()
        mine, theirs = socket.socketpair()
        code = RANK.format(parent=os.getpid(), fd=theirs.fileno())
        self._driver, self._rank = driver, mine
        self._child = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._words: Words | None = None
        self._trace: TraceReader | None = None
        self._kept: list[Any] = []  # the memory that the rank has too
        number = int(os.environ.get("RANK", "-1"))
        ipc.send(driver, {"key": key, "rank": number, "pid": self._child.pid})

    def serve(self) -> int:
        """Relay until the rank has ended, or the driver has gone. Returns the rank's exit code."""
        heard = [self._driver, self._rank]
        while self._child.poll() is None:
            readable, _, _ = select.select(heard, [], [], PERIOD_S)
            if self._driver in readable and not self._obey():
                self._child.kill()
                break
            if self._rank in readable and not self._pass_up():
                heard.remove(self._rank)
            self._relay()
        code = self._child.wait()
        while self._rank in heard and select.select([self._rank], [], [], 0)[0]:
            if not self._pass_up():
                break
        self._relay()
        guardian.end_children(guardian.PATIENCE)
        ipc.send(self._driver, {"ended": code})
        return code

    def _obey(self) -> bool:
        """Do what the driver asks for; False: it has gone."""
        message = ipc.receive(self._driver)
        if message is None:
            return False
        body, payload, _ = message
        if "order" in body:
            self._order(body["order"], body["ranks"], payload)
        elif "words" in body and self._words is not None:
            self._words.apply(body["words"])
        elif "signal" in body:
            self._child.send_signal(signal.Signals(body["signal"]))
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
    """Find the driver and serve it. Returns the rank's exit code."""
    address, _, key = environment.text("WORKBENCH_AGENT").rpartition("/")
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and key):
        raise WorkbenchError(
            "an agent is started by a launcher, with WORKBENCH_AGENT=host:port/key; there is "
            f"{environment.text('WORKBENCH_AGENT') or 'none'!r}"
        )
    del os.environ["WORKBENCH_AGENT"]  # the key is no business of the rank's
    driver = socket.create_connection((host, int(port)))
    driver.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        return Agent(driver, key).serve()
    except (ConnectionError, BrokenPipeError):  # the driver has gone
        guardian.end_children(0.0)
        return 1


if __name__ == "__main__":
    sys.exit(main())
