"""Agents on other hosts: the stream to the driver is encrypted, and each is sure of the other."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import LONG, lenet, until
from workbench.common import ipc
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.agent import Driver
from workbench.launchers.processes.channel import Channel, Identity, accept, connect
from workbench.launchers.processes.doorkeeper import MOST_CALLERS, Doorkeeper

LAUNCHER = '''
"""Ranks whose agents call as from another host, through a wire that is listened to."""

import os
import socket
import subprocess
import sys
import threading

from workbench.launchers.processes.elsewhere import AgentLauncher

heard, calls, sent = bytearray(), [], []  # sent: by each agent

def pass_on(source, target, copy):
    while data := source.recv(65536):
        heard.extend(data)
        copy.extend(data)
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

class Launcher(AgentLauncher):
    encrypted = True

    def start(self, count, environment):
        address, key, fingerprint = environment["WORKBENCH_AGENT"].split("/")
        host, port = address.split(":")
        calls.append((host, int(port), key, fingerprint))
        listener = socket.create_server(("127.0.0.1", 0))
        for way in range(count):
            wire = threading.Thread(target=self.wire, args=(listener, host, int(port)), daemon=True)
            wire.start()
        call = f"127.0.0.1:{listener.getsockname()[1]}/{key}/{fingerprint}"
        own = {**os.environ, **environment, "WORKBENCH_AGENT": call}
        agent = [sys.executable, "-m", "workbench.launchers.processes.agent"]
        self.agents = [subprocess.Popen(agent, env=own) for _ in range(count)]

    def wire(self, listener, host, port):
        agent, _ = listener.accept()
        driver = socket.create_connection((host, port))
        back = threading.Thread(target=pass_on, args=(driver, agent, bytearray()), daemon=True)
        back.start()
        sent.append(copy := bytearray())
        pass_on(agent, driver, copy)
        back.join()
        agent.close()
        driver.close()

    def failure(self):
        return "an agent has ended" if any(one.poll() is not None for one in self.agents) else ""

    def close(self, ranks):
        super().close(ranks)
        for agent in self.agents:
            agent.wait()
'''


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """The driver's end and the agent's of one channel."""
    identity = Identity.make()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        called = socket.create_connection(listener.getsockname())
        raw, _ = listener.accept()
    drivers: list[Channel] = []
    thread = threading.Thread(target=lambda: drivers.append(accept(raw, identity, 30)))
    thread.start()
    agent = connect(called, identity.fingerprint, 30)
    thread.join()
    yield drivers[0], agent
    for one in (drivers[0], agent):
        one.finish(10)


def test_much_at_once_both_ways_arrives_as_it_was(ends: tuple[Channel, Channel]) -> None:
    """More than all buffers hold, while neither side reads before it has written."""
    many = [secrets.token_bytes(8_000_000), secrets.token_bytes(5_000_000)]
    received: dict[int, bytes] = {}

    def serve(me: int) -> None:
        writer = threading.Thread(
            target=ipc.send, args=(ends[me].socket, {"of": me}, memoryview(many[me]))
        )
        writer.start()
        message = ipc.receive(ends[me].socket)
        assert message is not None and message[0] == {"of": 1 - me}
        received[me] = bytes(message[1])
        writer.join()

    threads = [threading.Thread(target=serve, args=(me,)) for me in (0, 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert received == {0: many[1], 1: many[0]}


def test_what_was_written_before_the_end_arrives(ends: tuple[Channel, Channel]) -> None:
    driver, agent = ends
    ipc.send(agent.socket, {"ended": 0}, b"x" * 300_000)
    threading.Thread(target=agent.finish, args=(20,)).start()
    message = ipc.receive(driver.socket)
    assert message is not None and message[0] == {"ended": 0} and len(message[1]) == 300_000
    assert ipc.receive(driver.socket) is None, "and then its end"


def test_an_agent_sends_nothing_to_another_driver() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        called = socket.create_connection(listener.getsockname())
        raw, _ = listener.accept()
    other = threading.Thread(target=lambda: accept(raw, Identity.make(), 30).finish(10))
    other.start()
    with pytest.raises(WorkbenchError, match="another process answers at the driver's address"):
        connect(called, Identity.make().fingerprint, 30)
    called.close()
    other.join()


def test_a_caller_without_the_key_is_hung_up_on_and_keeps_no_other_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Random bytes, a wrong key, a long message and silence, beside one caller that is right."""
    identity = Identity.make()
    door = Doorkeeper(identity)
    key, fingerprint = door.proof.split("/")
    listener = socket.create_server(("127.0.0.1", 0))

    def call() -> socket.socket:
        caller = socket.create_connection(listener.getsockname())
        door.ask(*listener.accept())
        return caller

    with listener, caplog.at_level(logging.WARNING, "workbench.launchers"), door:
        silent, noisy = call(), call()
        with pytest.raises(OSError):
            noisy.sendall(os.urandom(1_000_000))
            while noisy.recv(1 << 16):
                pass
            raise ConnectionError
        for other in ("é" * 32, "\ud800", "0" * 32):
            wrong = connect(call(), fingerprint, 30)
            ipc.send(wrong.socket, {"key": other, "rank": 0})
            assert ipc.receive(wrong.socket) is None
        long = connect(call(), fingerprint, 30)
        with contextlib.suppress(BrokenPipeError):  # it is hung up on before all of it has left
            ipc.send(long.socket, {"key": key, "rank": 0}, b"x" * 100_000)
        with contextlib.suppress(ConnectionResetError):  # the rest of it came when none read
            assert ipc.receive(long.socket) is None
        right = connect(call(), fingerprint, 30)
        ipc.send(right.socket, {"key": key, "rank": 3})
        known: list[int] = []
        until(lambda: known.extend(hello["rank"] for hello, _ in door.known()) or known)
        assert known == [3]
        until(lambda: len(caplog.records) >= 5)
        words = " ".join(record.getMessage() for record in caplog.records)
        assert "does not show the run's key" in words and "announces more than 65,536" in words
    assert silent.recv(1) == b"", "the door is closed"
    for one in (wrong, long, right):
        one.finish(10)
    silent.close()
    noisy.close()


def test_silent_callers_keep_no_agent_out_however_many_they_are() -> None:
    """The one that has been silent for longest is hung up on; an agent speaks at once."""
    door = Doorkeeper(Identity.make(), awaited=1)
    key, fingerprint = door.proof.split("/")
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as open_ones:

        def call() -> socket.socket:
            caller = open_ones.enter_context(socket.create_connection(listener.getsockname()))
            door.ask(*listener.accept())
            return caller

        open_ones.enter_context(door)
        silent = [call() for _ in range(MOST_CALLERS + 1)]
        right = call()
        assert silent[0].recv(1) == b"", "the oldest"
        more = [call() for _ in range(MOST_CALLERS // 2)]
        channel = connect(right, fingerprint, 60)
        ipc.send(channel.socket, {"key": key, "rank": 3})
        known: list[int] = []
        until(lambda: known.extend(hello["rank"] for hello, _ in door.known()) or known)
        assert known == [3] and more
        channel.finish(10)


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_agent_that_is_hung_up_on_before_it_is_heard_calls_again(encrypted: bool) -> None:
    door = Doorkeeper(Identity.make() if encrypted else None)
    key, fingerprint = (door.proof + "/").split("/")[:2]
    with socket.create_server(("127.0.0.1", 0)) as listener, door:
        host, port = listener.getsockname()
        called = socket.create_connection((host, port))
        refused, _ = listener.accept()
        refused.close()
        driver = Driver(host, port, key, fingerprint)
        driver.greet(called, 1)
        listener.settimeout(0.01)
        known: list[Any] = []

        def is_known() -> bool:
            driver.session.receive()
            driver.stay_in_touch()
            with contextlib.suppress(TimeoutError):
                door.ask(*listener.accept())
            known.extend(door.known())
            return bool(known) or driver.gone

        until(is_known)
        assert not driver.gone and known[0][0]["pid"] == 1
        driver.session.close()


@pytest.fixture
def afar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A launcher of that name. Returns its module, once it has started ranks."""
    (tmp_path / "launchers").mkdir()
    (tmp_path / "launchers" / "afar.py").write_text(LAUNCHER)
    monkeypatch.setenv("WORKBENCH_EXTENSIONS", str(tmp_path))
    for name in [name for name in sys.modules if name.endswith("afar")]:
        monkeypatch.delitem(sys.modules, name)
    return lambda: sys.modules[next(name for name in sys.modules if name.endswith("afar"))]


def test_nothing_is_read_on_the_way_and_what_is_sent_again_is_refused(
    afar: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """All bytes of both agents, from the first on, at the driver's port while their run goes on. It
    is the same run as without a wire.
    """
    exp = wb.Experiment(ranks=2, iterations=LONG)
    with caplog.at_level(logging.WARNING, "workbench.launchers"):
        run = wb.run(exp.replace(launcher="afar", pad_compute="20 ms"))
        until(lambda: run.iteration > 5 or run.done, 240)
        wire, replies = afar(), []
        host, port, key, _ = wire.calls[0]
        for copy in wire.sent:
            session = bytes(copy)
            assert len(session) > 10_000, "the hello is in it, and records"
            caller = socket.create_connection((host, port), timeout=60)
            with caller, contextlib.suppress(ConnectionError):  # hung up on in the middle, maybe
                caller.sendall(session)
                caller.shutdown(socket.SHUT_WR)
                while data := caller.recv(1 << 16):
                    replies.append(data)
        until(lambda: len(caplog.records) >= 2 or run.done, 60)
        assert not run.done, "the run goes on meanwhile"
        refusals = [record.getMessage() for record in caplog.records]
        run.stop()
        result = run.wait(240)
    whole = wb.run(exp.replace(iterations=len(result.losses))).wait(240)
    assert result.losses == whole.losses and run.dropped == 0
    assert run.store.events.select("rank", "lane", "seq").is_unique().all(), "no row twice"
    assert len(refusals) == 2, refusals
    for words in refusals:
        assert words.startswith("hung up on 127.0.0.1:") and "does not show the run's key" in words
        assert "BAD_RECORD_MAC" in words, "the session's keys are those of that connection"
    assert len(b"".join(replies)) < 10_000, "no answer but the handshake's"
    assert len(wire.heard) > 100_000, "records travel"
    for word in (key.encode(), b"lenet_digits", b'"trace"', b'"words"'):
        assert word not in wire.heard
    with pytest.raises(OSError):
        socket.create_connection((host, port), timeout=5)


@pytest.mark.full
def test_ranks_without_shared_memory_save_and_stop_before_the_same_iteration(
    afar: Callable[[], Any], tmp_path: Path
) -> None:
    """Agree on an iteration by words that come later than the data of the one before."""
    exp = lenet(ranks=3, iterations=LONG)
    plan = wb.Checkpoint(folder=str(tmp_path / "saved"), every=LONG)
    run = wb.run(exp.replace(launcher="afar", checkpoint=plan, pad_compute="20 ms"))
    until(lambda: run.iteration > 5 or run.done, 240)
    assert run.checkpoint(timeout=240).is_dir()
    run.stop()
    result = run.wait(240)
    assert "checkpoint problem" not in run.store.metadata
    whole = wb.run(exp.replace(iterations=len(result.losses))).wait(240)
    assert result.losses == whole.losses and len({*result.digests.values()}) == 1


def test_older_protocols_are_refused() -> None:
    context = Identity.make().context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_an_agent_without_its_driver_ends() -> None:
    """Its address leads to one that speaks no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        call = f"127.0.0.1:{listener.getsockname()[1]}/{'0' * 32}/{'0' * 64}"
        agent = subprocess.Popen(
            [sys.executable, "-m", "workbench.launchers.processes.agent"],
            env={**os.environ, "WORKBENCH_AGENT": call},
            stderr=subprocess.PIPE,
        )
        caller, _ = listener.accept()
        caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        caller.close()
        _, errors = agent.communicate(timeout=60)
    assert agent.returncode != 0 and b"SSL" in errors
