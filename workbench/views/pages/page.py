"""One viewer of a run: its requests, and the messages to it (views/pages/feed.py does the rest)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from workbench.views.packing import Message
from workbench.views.pages.commands import Orders, reply
from workbench.views.pages.facts import Watched

Send = Callable[[Message], None]
Ready = Callable[[], bool]
Start = Callable[[Mapping[str, Any]], str]  # a page's wish to start a run; returns words

TRIAL_VERBS = ("run_with", "run_with_link", "show_trial", "undo_trial")
MOST_KNOWN = 64  # commands whose answers are kept, in case they are sent again
LONGEST_TOKEN = 64  # characters: a stranger's page may send what it likes
MOST_LATER = 32 << 20  # bytes that a page may be behind; then it goes on with the newest rows


class Server(Protocol):
    """The feed of a run (views/pages/feed.py), as a page of it needs it."""

    orders: Orders

    @property
    def id(self) -> str: ...
    def wake(self, run: Watched) -> None: ...
    def remember(self, page: Page) -> None: ...
    def forget(self, page: Page) -> None: ...
    def history(self, page: Page, position: int, short: bool = False) -> Iterator[Message]: ...


class Trials(Protocol):
    """The runs beside a page's own: the same experiment with another knob or another link."""

    @property
    def facts(self) -> dict[str, Any]: ...
    @property
    def ghost(self) -> dict[str, Any] | None: ...
    def obey(self, verb: str, args: Mapping[str, Any]) -> str: ...


class Page:
    """One viewer of a run. ``hear`` what it says, from any thread; ``leave`` when it has gone."""

    def __init__(
        self,
        feed: Server,
        run: Watched,
        send: Send,
        readonly: bool,
        start: Start | None,
        scene: str,
        ready: Ready,
        idle: Ready,
        *,
        trials: Trials | None = None,
    ) -> None:
        self.run = run  # a run lives while a page shows it
        self._feed, self._send, self._start, self._ready = feed, send, start, ready
        self.idle = idle
        self._trials = None if readonly else trials
        self.readonly, self._scene = readonly or not hasattr(run, "pause"), scene
        self.moment = ""  # at which it opens, as a page's menu copies it
        self.walk: dict[str, Any] | None = None  # which it opens (views/walks.py)
        self._hellos: deque[Mapping[str, Any]] = deque()  # oldest first
        self._answers: deque[Message] = deque()  # to what it had done
        self._greeted: deque[object] = deque(maxlen=16)  # tokens of hellos that were answered
        self._obeyed: dict[str, Message | None] = {}  # answers to commands; None: not yet
        self.fault: Exception | None = None  # why nothing could be sent
        self._history: Iterator[Message] | None = None
        self._later: list[Message] = []  # live, while the history is sent or it takes no more
        self._is_late = False  # too far behind
        self._seq = self._older = 0
        self.listens = self.gone = False
        self._left = False  # its host says so, and knows
        self.owed = False  # it asks whether a page is there

    def hear(self, message: Any) -> None:
        """Take a message from the page: hello, or a command; others are ignored.

        The feed's thread answers; only the wish to start a run is its host's task, and done at
        once. A page that has received nothing for a while says hello with the number of the last
        message that it ``heard``: it gets the present state, and finds by that number what it
        missed.
        """
        if not isinstance(message, Mapping):
            return
        if message.get("type") == "do" and self._again(message.get("id")):
            return
        if message.get("type") == "do" and message.get("verb") in ("start", *TRIAL_VERBS):
            answer = Message(reply(message, *self._started(message)))
            with contextlib.suppress(Exception):  # the page is gone
                self._send(answer)
        elif self._left:
            return
        elif message.get("type") == "do":
            self._feed.orders.take(self, message)
        elif message.get("type") == "hello":
            self.ask(message)
            self._feed.wake(self.run)

    def ask(self, message: Mapping[str, Any]) -> None:
        """Queue an answer to a hello for the feed's next round.

        A page that could not be reached counts as present again once it speaks.
        """
        self._hellos.append(message)
        if self.gone:
            self.gone = False
            self._feed.remember(self)

    def _again(self, token: object) -> bool:
        """Return whether a command was heard before; its answer, which may be lost, is sent again.

        A page repeats a command, with the same token, until it is answered.
        """
        if not isinstance(token, str) or len(token) > LONGEST_TOKEN:
            return False
        if token not in self._obeyed:
            self._obeyed[token] = None
            while len(self._obeyed) > MOST_KNOWN:
                del self._obeyed[next(iter(self._obeyed))]
            return False
        if (answer := self._obeyed[token]) is not None:
            self.reply(answer)
        return True

    def reply(self, answer: Message) -> None:
        """Queue this for the feed's next round: one thread sends, whichever thread answers."""
        token = answer.header.get("id")
        if isinstance(token, str) and token in self._obeyed:
            self._obeyed[token] = answer
        self._answers.append(answer)
        self._feed.wake(self.run)

    def leave(self) -> None:
        """Send nothing more to the page. The run goes on."""
        self._left = True
        self._lose()

    def _lose(self) -> None:
        self.gone = True
        self.listens = False
        self._history, self._later, self._is_late = None, [], False
        self._feed.forget(self)

    def startle(self) -> None:
        """Note a possible gap in what the page has: it gets everything again once it asks."""
        self.listens, self._history = False, None

    # ---- what the feed's thread does with it

    @property
    def waits(self) -> bool:
        """Whether there is something to send or do at once."""
        return bool(self._hellos or self._answers) or (self._history is not None and self._ready())

    @property
    def behind(self) -> bool:
        """Return whether something is still to be sent to it."""
        return self._history is not None or bool(self._later) or self._is_late

    def answer(self, position: int) -> None:
        """Answer its commands; begin its history, if it asked for it, up to ``position``."""
        while self._answers:
            self._push(self._answers.popleft())
        newest = None
        while self._hellos:  # of several that waited for a busy kernel, the newest is answered
            newest = self._hellos.popleft()
            if self.listens and "heard" in newest and newest.get("run") == self._feed.id:
                self.owed, newest = True, None
        if newest is not None:
            self._hello(newest.get("token"), position)
        elif self._is_late:
            self._history = self._feed.history(self, position, short=True)
        self._is_late = False

    def _hello(self, token: object, position: int) -> None:
        """Answer a hello once: a page repeats it, with the same token, until it is answered."""
        if token is not None and token in self._greeted:
            return
        self._greeted.append(token)
        self._history, self._later, self.listens = self._feed.history(self, position), [], True
        self.owed = False

    def tell(self, live: Message | None) -> None:
        """Send the next part of the history, or else what is new; to a slow page, later.

        A page that falls too far behind goes on with the newest rows.
        """
        if live is not None and self.listens:
            self._later.append(live)
            self.owed = False
        if not self._ready():
            if sum(len(message.payload) for message in self._later) > MOST_LATER:
                self._is_late, self._history, self._later = True, None, []
            return
        if self._history is not None:
            if (part := next(self._history, None)) is not None:
                return self._push(part)
            self._history = None
        later, self._later = self._later, []
        for message in later:
            self._push(message)

    def begin(self, older: int) -> None:
        """Begin a history that leaves out the ``older`` rows."""
        self._seq, self._older = 0, older

    def _push(self, message: Message) -> None:
        if self.gone:
            return
        if message.header["type"] == "batch":
            self._seq += 1
            run = {
                "readonly": self.readonly,
                "scene": self._scene,
                "moment": self.moment,
                "can_start": self._start is not None,
                "trials": self._trials.facts if self._trials else None,
            }
            if self._seq == 1 and self.walk:
                run["walk"] = self.walk
            if self._seq == 1 and self._trials and (ghost := self._trials.ghost):
                run["ghost"] = ghost
            own = {"seq": self._seq, "run": run, "counters": {"older": self._older}}
            message = message.to_page(own)
        try:
            self._send(message)
        except Exception as error:  # whatever the connection raised: the page is gone
            self.fault = error
            self._lose()

    def refresh(self) -> None:
        """Send the facts of the run again, and of the trials beside it."""
        self.ask({"type": "hello", "heard": 0, "run": self._feed.id})
        self._feed.wake(self.run)

    def _started(self, message: Mapping[str, Any]) -> tuple[bool, str]:
        verb, args = message["verb"], message.get("args") or {}
        begin: Start | None = self._start
        if verb in TRIAL_VERBS:
            begin = partial(self._trials.obey, verb) if self._trials else None
        if begin is None:
            return False, "No run can be started from this page."
        try:
            return True, begin(args)
        except Exception as error:  # the host's own words
            return False, str(error)
