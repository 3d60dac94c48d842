"""Messages between an agent and its driver that outlive a cut: none is lost, none arrives twice.

    sender: keeps 8, 9, 10 ──── 8, 9, 10 ────> receiver: has 7, 8 ... a cut
    sender: sends 9, 10 again <── "has 8" ──── receiver: "has 8", on a new connection

Every message has a number, and is kept until the other side says that it has it; so what was under
way when a connection ended is sent once more on the next one, and what comes twice is left out.
What says how things are at this moment (``passing``) is neither numbered nor kept.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.common import ipc, threads
from workbench.launchers.processes.channel import Channel

MOST_KEPT = 64 << 20  # bytes that wait for the other side, until there is no room for more
ANSWER_AFTER = 1 << 18  # bytes received, after which the other side is told at once
_AT_ONCE = 1 << 16  # bytes
STUCK = 10.0  # seconds in which not one byte has left for another host: a new one is needed


@dataclass(slots=True)
class _Message:
    body: Mapping[str, Any]
    payload: bytes | memoryview
    number: int = 0  # 0: passing
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Stream:
    """One connection, and the message of which a part has come."""

    channel: Channel
    heard: bool = False  # whether anything has come through it
    stuck: bool = False  # nothing leaves through it any more
    frames: ipc.Frames = field(default_factory=ipc.Frames)


class Session:
    """One end. Any thread may send; one thread receives.

    ``heard_at``: when bytes last came, by the monotonic clock. ``given_up``: nothing came through
    the connection that ended last: the other side had not waited for the answer to its call.

    A connection through which nothing leaves stays open until there is another: its end says that
    the process at this end has ended, and where cores are busy it says so falsely.
    """

    def __init__(self, name: str) -> None:
        self._news = threading.Condition()
        self._kept = deque[_Message]()  # numbered, and not yet had by the other side
        self._passing = deque[_Message]()
        self._number = self._sent = self._has = self._peer_has = 0
        self._unanswered = self._waiting = 0  # bytes: received, kept
        self._stream: _Stream | None = None
        self._over = self._writing = self.given_up = False
        self.heard_at = time.monotonic()
        threads.start(self._write, f"{name}, sends", self.close)

    @property
    def channel(self) -> Channel | None:
        """The present connection; None: there is none."""
        stream = self._stream
        return stream.channel if stream is not None else None

    @property
    def has(self) -> int:
        """The number of the last message that has come."""
        return self._has

    @property
    def full(self) -> bool:
        """Whether so much waits for the other side that no more should be sent."""
        return self._waiting >= MOST_KEPT

    @property
    def waiting(self) -> int:
        """Return how many bytes wait for the other side."""
        return self._waiting

    @property
    def behind(self) -> float:
        """For how many seconds the oldest of what the other side does not have has waited."""
        with self._news:
            return time.monotonic() - self._kept[0].since if self._kept else 0.0

    @property
    def settled(self) -> bool:
        """Whether the other side has all that was sent."""
        return self._peer_has >= self._number

    @property
    def flows(self) -> bool:
        """Return whether there is a connection, and what is sent leaves through it."""
        stream = self._stream
        return stream is not None and not stream.stuck

    def join(self, channel: Channel, peer_has: int, answers: bool = False) -> None:
        """Go on over a new connection. ``peer_has``: the last number that the other side has.
        ``answers``: the other side has called, and is told first what has come here.
        """
        with self._news:
            before, self._stream = self._stream, _Stream(channel)
            # On this machine the other side takes it, or ends; it may be stopped for minutes.
            channel.socket.settimeout(STUCK if channel.encrypted else None)
            self._let_go(peer_has)
            self._sent = self._peer_has
            self._passing.clear()
            if answers:
                self._passing.append(_Message({}, b""))
            self.heard_at = time.monotonic()
            self._news.notify_all()
        if before is not None:
            before.channel.cut()

    def part(self, channel: Channel | None = None) -> None:
        """Give up the connection, if it is still this one; what is kept waits for the next."""
        with self._news:
            stream = self._stream
            if stream is None or (channel is not None and stream.channel is not channel):
                return
            self._stream, self.given_up = None, not stream.heard
            self._news.notify_all()
        stream.channel.cut()

    def close(self) -> None:
        """End the session."""
        with self._news:
            self._over = True
            self._news.notify_all()
        self.part()

    def finish(self, seconds: float) -> None:
        """End the session, as soon as all that was sent has left; after so many seconds, anyhow."""
        with self._news:
            self._news.wait_for(lambda: not (self.flows and self._unsent), seconds)
            stream, self._stream = self._stream, None
            self._over = True
            self._news.notify_all()
        if stream is not None:
            stream.channel.finish(seconds)

    @property
    def _unsent(self) -> bool:
        return bool(self._writing or self._passing or self._sent < self._number)

    def wait_for_stream(self, seconds: float) -> bool:
        """Wait until there is a connection, no longer than that. Returns whether there is one."""
        with self._news:
            self._news.wait_for(lambda: self._over or self._stream is not None, seconds)
            return not self._over and self._stream is not None

    def send(
        self, message: Mapping[str, Any], payload: bytes | memoryview = b"", passing: bool = False
    ) -> None:
        """Have a message sent. ``passing``: on the present connection, or not at all."""
        with self._news:
            if self._over:
                return
            if passing:
                if self.flows:
                    self._passing.append(_Message(message, payload))
            else:
                self._number += 1
                self._kept.append(_Message(message, payload, self._number))
                self._waiting += len(payload)
            self._news.notify_all()

    def receive(self) -> list[tuple[dict[str, Any], bytearray]] | None:
        """Wait for bytes, and return the messages that are whole now, each once; None: there is no
        connection (any more).
        """
        stream = self._stream
        if stream is None:
            return None
        try:
            data = stream.channel.socket.recv(_AT_ONCE)
            messages = stream.frames.take(data)
        except TimeoutError:
            return []
        except (OSError, ValueError):
            data = b""
        if not data:
            self.part(stream.channel)
            return None
        stream.heard, self.heard_at = True, time.monotonic()
        return [fresh for one in messages if (fresh := self._take(*one, stream.channel))]

    def _take(
        self, body: dict[str, Any], payload: bytearray, channel: Channel
    ) -> tuple[dict[str, Any], bytearray] | None:
        """Return a message without what is the session's; None where it came before, or is none."""
        number, peer_has = int(body.pop("number", 0)), int(body.pop("has", 0))
        with self._news:
            self._let_go(peer_has)
            if number:
                if number <= self._has:
                    return None
                if number > self._has + 1:  # no agent of ours leaves one out
                    stream, self._stream = self._stream, None
                    if stream is not None:
                        stream.channel.cut()
                    return None
                self._has = number
                self._unanswered += len(payload)
                if self._unanswered >= ANSWER_AFTER:
                    self._passing.append(_Message({}, b""))
                    self._unanswered = 0
                    self._news.notify_all()
        return (body, payload) if body else None

    def _let_go(self, peer_has: int) -> None:
        """Forget what the other side has."""
        peer_has = min(peer_has, self._number)
        while self._kept and self._kept[0].number <= peer_has:
            self._waiting -= len(self._kept.popleft().payload)
        self._peer_has = max(self._peer_has, peer_has)
        self._sent = max(self._sent, self._peer_has)

    def _next(self) -> tuple[_Message, _Stream] | None:
        """Return what is to be sent next, and where to; None: nothing is."""
        if self._stream is None or self._stream.stuck:
            return None
        if self._passing:
            return self._passing.popleft(), self._stream
        if self._sent < self._number:
            message = self._kept[self._sent - self._peer_has]
            self._sent = message.number
            return message, self._stream
        return None

    def _write(self) -> None:
        """Send what is to be sent, until the session is over."""
        while True:
            with self._news:
                following, self._writing = None, False
                self._news.notify_all()
                while not self._over and (following := self._next()) is None:
                    self._news.wait(1.0)
                if following is None:
                    return
                message, stream = following
                self._writing = True
                number = {"number": message.number} if message.number else {}
                body = {**message.body, **number, "has": self._has}
            frame = ipc.frame(body, message.payload)
            try:
                for part in (frame, message.payload):
                    view = memoryview(part)
                    while view:
                        view = view[stream.channel.socket.send(view) :]
            except TimeoutError:
                stream.stuck = True
            except OSError:
                self.part(stream.channel)
