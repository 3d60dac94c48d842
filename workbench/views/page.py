"""One viewer of a run: what it asks for, and what is sent to it (views/feed.py does the rest)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.views import Message
from workbench.views.commands import obey, said
from workbench.views.facts import Watched

if TYPE_CHECKING:
    from workbench.views.feed import Feed

Send = Callable[[Message], None]
Start = Callable[[Mapping[str, Any]], str]  # a page's wish to start a run; returns words


class Page:
    """One viewer of a run. ``hear`` what it says, from any thread; ``leave`` when it has gone."""

    def __init__(
        self, feed: Feed, run: Watched, send: Send, readonly: bool, start: Start | None, scene: str
    ) -> None:
        self.run = run  # a run lives while a page shows it
        self._feed, self._send, self._start = feed, send, start
        self._readonly, self._scene = readonly or not hasattr(run, "pause"), scene
        self._asked: deque[Mapping[str, Any]] = deque()
        self._greeted: deque[object] = deque(maxlen=16)  # tokens of hellos that were answered
        self.fault: Exception | None = None  # why nothing can be sent any more
        self._history: Iterator[Message] | None = None
        self._later: list[Message] = []  # live, while the history is sent
        self._seq = self._older = 0
        self.listens = self.gone = False

    def hear(self, message: Any) -> None:
        """What the page sent: hello, or something to do; to anything else nobody listens. The
        feed's thread answers, but for the wish to start a run, which is its host's business and
        done at once.
        """
        if not isinstance(message, Mapping):
            return
        if message.get("type") == "do" and message.get("verb") == "start":
            answer = Message(said(message, *self._started(message)))
            with contextlib.suppress(Exception):  # nobody is there any more
                self._send(answer)
        elif message.get("type") in ("hello", "do") and not self.gone:
            self.ask(message)
            self._feed.wake(self.run)

    def ask(self, message: Mapping[str, Any]) -> None:
        """Have it answered in the feed's next round."""
        self._asked.append(message)

    def leave(self) -> None:
        """Nothing more is sent. The run goes on."""
        self.gone = True
        self.listens = False
        self._feed.forget(self)

    # ---- what the feed's thread does with it

    @property
    def waits(self) -> bool:
        """Is there something to be sent or done at once?"""
        return bool(self._asked) or self._history is not None

    def answer(self, position: int) -> None:
        """Do what the page asked for; its history, if asked for, goes up to ``position``."""
        while self._asked:
            message = self._asked.popleft()
            if message["type"] == "hello":
                self._hello(message.get("token"), position)
            else:
                self._push(Message(obey(self.run, message, self._readonly)))

    def _hello(self, token: object, position: int) -> None:
        """A page repeats a hello, with the same token, until it is answered: once is enough."""
        if token is not None and token in self._greeted:
            return
        self._greeted.append(token)
        self._history, self._later, self.listens = self._feed.history(self, position), [], True

    def tell(self, live: Message | None) -> None:
        """Send the next part of the history, or else what is new."""
        if live is not None and self.listens:
            self._later.append(live)
        if self._history is not None:
            if (part := next(self._history, None)) is not None:
                return self._push(part)
            self._history = None
        later, self._later = self._later, []
        for message in later:
            self._push(message)

    def begin(self, older: int) -> None:
        """A history begins that leaves out the ``older`` rows."""
        self._seq, self._older = 0, older

    def _push(self, message: Message) -> None:
        if self.gone:
            return
        header = message.header
        if header["type"] == "batch":
            self._seq += 1
            header = header | {
                "seq": self._seq,
                "run": header["run"]
                | {
                    "readonly": self._readonly,
                    "scene": self._scene,
                    "can_start": self._start is not None,
                },
                "counters": header["counters"] | {"older": self._older},
            }
        try:
            self._send(Message(header, message.payload))
        except Exception as error:  # whatever the connection raised: nobody is there any more
            self.fault = error
            self.leave()

    def _started(self, message: Mapping[str, Any]) -> tuple[bool, str]:
        if self._start is None:
            return False, "No run can be started from this page."
        try:
            return True, self._start(message.get("args") or {})
        except Exception as error:  # the host's own words
            return False, str(error)
