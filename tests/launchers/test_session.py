"""Messages that outlive a cut: each arrives once, in order, wherever the connection ends."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time

import pytest

from tests.live import until
from workbench.common import ipc
from workbench.launchers.processes import agent as agents
from workbench.launchers.processes import remote_rank
from workbench.launchers.processes.channel import Channel
from workbench.launchers.processes.remote_rank import RemoteRank
from workbench.launchers.processes.session import Session
from workbench.transports.peer_page import clock_identity


class Ends:
    """Two sessions, joined by one connection after the other."""

    def __init__(self) -> None:
        self.agent, self.driver = Session("agent"), Session("driver")
        self.came: dict[str, list[tuple[int, bytes]]] = {"agent": [], "driver": []}
        self.join()
        self.readers = [
            threading.Thread(target=self.read, args=(name, one), daemon=True)
            for name, one in (("agent", self.agent), ("driver", self.driver))
        ]
        for one in self.readers:
            one.start()

    def join(self) -> None:
        mine, theirs = socket.socketpair()
        for one in (mine, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # messages in pieces
        has = self.driver.has, self.agent.has
        self.agent.join(Channel(mine), has[0])
        self.driver.join(Channel(theirs), has[1])

    def read(self, name: str, one: Session) -> None:
        while True:
            messages = one.receive()
            if messages is None and not one.wait_for_stream(30):
                return
            for body, payload in messages or ():
                self.came[name].append((body["at"], bytes(payload)))

    def close(self) -> None:
        for one in (self.agent, self.driver):
            one.close()
        for reader in self.readers:
            reader.join(10)


@pytest.mark.parametrize("seed", range(4))
def test_each_message_arrives_once_and_in_order(seed: int) -> None:
    draw, ends = random.Random(seed), Ends()
    sent: dict[str, list[tuple[int, bytes]]] = {"agent": [], "driver": []}
    cuts = 0
    for at in range(400):
        for name, one in (("driver", ends.agent), ("agent", ends.driver)):
            payload = bytes(draw.randrange(20_000))
            one.send({"at": at}, payload)
            sent[name].append((at, payload))
        if draw.random() < 0.1:
            cuts += 1
            draw.choice([ends.agent, ends.driver]).part()
            if draw.random() < 0.5:
                time.sleep(0.001)  # both find it
            ends.join()
    until(lambda: all(len(ends.came[name]) >= len(sent[name]) for name in sent))
    assert cuts > 20 and ends.came == sent
    ends.close()


def test_what_is_passing_is_not_sent_again() -> None:
    ends = Ends()
    ends.agent.part()
    ends.agent.send({"at": 0}, passing=True)
    ends.agent.send({"at": 1})
    ends.join()
    until(lambda: ends.came["driver"])
    assert ends.came["driver"] == [(1, b"")]
    ends.close()


def test_what_is_kept_has_a_bound_and_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.launchers.processes.session.MOST_KEPT", 100_000)
    ends = Ends()
    ends.agent.part()
    for at in range(10):
        assert not ends.agent.full
        ends.agent.send({"at": at}, bytes(10_000))
    assert ends.agent.full
    ends.join()
    ends.driver.send({"at": 0})  # by which the agent knows what has come
    until(lambda: len(ends.came["driver"]) == 10)
    ends.driver.send({"at": 1})
    until(lambda: ends.agent.settled and not ends.agent.full)
    ends.close()


def with_too_much_to_send(kind: type[Channel]) -> tuple[Session, Session, socket.socket]:
    """Return an agent that sends more than a connection holds, the driver, and the other end."""
    mine, theirs = socket.socketpair()
    agent, driver = Session("agent"), Session("driver")
    agent.join(kind(mine), 0)
    agent.send({"at": 0}, bytes(1 << 22))
    return agent, driver, theirs


def test_a_rank_that_is_stopped_on_this_machine_has_all_of_it_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver is stopped (Ctrl-Z, a debugger) for longer than a host may be stuck."""
    monkeypatch.setattr("workbench.launchers.processes.session.STUCK", 0.1)
    agent, driver, theirs = with_too_much_to_send(Channel)
    until(lambda: agent._sent == 1)
    time.sleep(0.4)
    driver.join(Channel(theirs), 0)
    until(lambda: driver.receive() or driver.channel is None)
    assert driver.has == 1 and agent.channel is not None
    for one in (agent, driver):
        one.close()


def test_a_connection_through_which_nothing_leaves_stays_open_until_there_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end would say that the agent has ended; what has not left goes over the next one."""
    monkeypatch.setattr("workbench.launchers.processes.session.STUCK", 0.1)
    agent, driver, theirs = with_too_much_to_send(Encrypted)
    until(lambda: not agent.flows)
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):  # and no end of the stream
        while theirs.recv(1 << 20):
            pass
    agent.send({"ping": 1}, passing=True)
    assert agent.channel is not None and not agent._passing
    mine, theirs = socket.socketpair()
    driver.join(Channel(theirs), 0, answers=True)
    assert ipc.receive(mine)[0] == {"has": 0}  # type: ignore[index]
    agent.join(Channel(mine), 0)
    until(lambda: driver.receive() or driver.channel is None)
    assert driver.has == 1 and agent.flows
    for one in (agent, driver):
        one.close()


class Encrypted(Channel):
    """A connection that may lead to another host, as far as a session can tell."""

    encrypted = True


class Busy(threading.Thread):
    """A driver that answers each call after so many seconds, one after the other."""

    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        self.seconds, self.calls = seconds, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.answered: list[socket.socket] = []
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self.listener.accept()
                self.calls += 1
                time.sleep(self.seconds)
                with contextlib.suppress(OSError):
                    ipc.send(caller, {"has": 0})
                    self.answered.append(caller)

    def seen_by_an_agent(self) -> agents.Driver:
        return agents.Driver("127.0.0.1", self.listener.getsockname()[1], "key", "fingerprint")

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        for one in (self.listener, *self.answered):
            one.close()


def test_an_agent_waits_longer_for_a_driver_that_answers_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that always waited for as long would be answered only after it has given up."""
    monkeypatch.setattr(agents, "ANSWER", 0.1)
    monkeypatch.setattr(agents, "AGAIN", 0.01)
    monkeypatch.setattr(agents, "connect", lambda sock, *_: Encrypted(sock))
    busy = Busy(0.5)
    driver = busy.seen_by_an_agent()
    driver._call()
    assert driver.session.channel is not None and not driver.gone
    assert 1 < busy.calls < 9
    driver.session.close()
    busy.close()


def test_an_agent_calls_a_silent_driver_less_often_where_the_network_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agents, "connect", lambda sock, *_: Encrypted(sock))
    busy = Busy(0.0)
    driver = busy.seen_by_an_agent()
    waits = [driver._silent]
    for _ in range(9):
        driver._call()
        waits.append(driver._silent)
    assert waits[:3] == [agents.SILENT, agents.SILENT, 2 * agents.SILENT]  # it had none at first
    assert waits[-1] == driver.patience / 4
    driver.session.close()
    busy.close()


class OfAnAgent:
    """A rank on another host whose agent is the other end of its connections."""

    def __init__(self) -> None:
        self.end, driver = socket.socketpair()
        hello = {"pid": 1, "host": "h", "clock": clock_identity()}
        self.rank = RemoteRank(0, hello, Channel(driver), True)
        self.send({"printed": 1})

    def send(self, body: dict[str, int]) -> None:
        ipc.send(self.end, body)

    def hang_up(self) -> None:
        self.end.close()

    def call_again(self) -> None:
        self.end, driver = socket.socketpair()
        self.rank.again(Channel(driver), {"has": 0})
        assert ipc.receive(self.end) is not None


def test_an_agent_that_gave_up_its_call_is_awaited_and_one_that_was_heard_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Take a call late, as a driver does that is too busy to answer, and find it at its end."""
    monkeypatch.setattr(remote_rank, "RETURN_S", 0.1)
    there, ended = OfAnAgent(), OfAnAgent()
    until(lambda: there.rank._session._stream.heard and ended.rank._session._stream.heard)  # type: ignore[union-attr]
    there.call_again()
    for one in (there, ended):
        one.hang_up()
    until(lambda: ended.rank.code is not None)
    assert ended.rank.silent and there.rank.code is None
    there.call_again()
    there.send({"ended": 3})
    until(lambda: there.rank.code == 3)
    for one in (there, ended):
        one.rank.give_up()


def test_an_agent_whose_call_the_sender_finds_ended_is_awaited_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection before it was heard; nothing came through the one that ended last."""
    one = OfAnAgent()
    session = one.rank._session
    until(lambda: session._stream is not None and session._stream.heard)
    session.part()
    assert not session.given_up
    one.call_again()
    monkeypatch.setattr(remote_rank, "RETURN_S", 0.1)
    session.part()  # as where the thread that sends finds it closed
    assert session.given_up
    time.sleep(0.3)
    assert one.rank.code is None
    one.call_again()
    one.send({"ended": 3})
    until(lambda: one.rank.code == 3)
    one.rank.give_up()
