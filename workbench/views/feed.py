"""The feed of a run: what its pages are told, in messages, while it runs and afterwards.

    store.tap() --25 times a second--> pack, once --> every page that listens

A page joins with a function that sends. It says hello and is answered with the history, the newest
rows of the run, and from there on with each batch as it arrives: no row twice, none left out. One
thread a run does it all; it begins with the first hello and ends when nobody listens, or when the
run is over and every page knows. A page that comes later finds the history just the same.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.events import KINDS
from workbench.partitions.facts import run_facts, samples_told
from workbench.store import Store, Tap
from workbench.table import Batch, from_frame
from workbench.views import Message, Passages, pack, passages
from workbench.views.facts import (
    LINK_NOTES,
    NO_CONTROL,
    Watched,
    changed,
    control,
    emulated,
    facts,
    found,
    lanes_now,
    slowed,
    state_of,
)
from workbench.views.page import Page, Send, Start
from workbench.views.tally import Tally

__all__ = ["SCENES", "Feed", "Page", "Send", "Start", "feed", "nothing"]

TICK_SECONDS = 0.04
HEARTBEAT_SECONDS = 1.0  # so that a page knows the driver's clock, and that it lives
HISTORY_ROWS = 2_000_000  # the newest; a page holds no more
MESSAGE_ROWS = 250_000  # of history, a message
# Each is a file, assets/scene_<name>.js.
# Facts that pages keep: told with a history, and when they change.
HEAVY = ("pipeline", "model", "samples", "buckets")
FOUND = ("model", "shards", "buckets", "auto")  # facts that ranks find out while they run
SCENES = (
    "overview", "collectives", "timeline", "server", "pipeline", "model", "peers", "samples",
    "shards", "pair",
)  # fmt: skip

_feeds: weakref.WeakKeyDictionary[Watched, Feed] = weakref.WeakKeyDictionary()
_feeds_lock = threading.Lock()


def feed(run: Watched) -> Feed:
    """The feed of ``run``: one, however many pages show it."""
    with _feeds_lock:
        if run not in _feeds:
            _feeds[run] = Feed(run)
        return _feeds[run]


def nothing(
    words: str = "Nothing runs yet.", scene: str = "overview", can_start: bool = False
) -> Message:
    """What a page is told for which there is no run; ``can_start``: it may ask for one."""
    run = {"id": "", **facts({}), "readonly": True, "scene": scene, "can_start": can_start}
    return Message(
        {
            "type": "batch", "seq": 1, "reset": True, "run": run, "kinds": list(KINDS),
            "state": "empty", "words": words, "control": NO_CONTROL, "origin": 0, "now": None,
            "counters": {
                "events": 0, "dropped": 0, "per_second": 0, "iteration": -1, "loss": None,
                "accuracy": None, "record_share": None, "older": 0,
            },
            "lanes_now": [], "strings": {"first": 0, "texts": [""]}, **pack([], 0)[0],
        }
    )  # fmt: skip


class Feed:
    """The messages of one run, for all of its pages."""

    def __init__(self, run: Watched) -> None:
        self._run, self._store = weakref.ref(run), run.store
        # First: what is told in between is read once more, not missed.
        self._heard = {name: run.store.metadata.get(name) for name in FOUND}
        self._facts = {"id": uuid.uuid4().hex, **facts(run.store.metadata)}
        self._tally = Tally(run.store, slowed(run.store.metadata))
        self._samples = samples_told(run.store.metadata)
        self._told: dict[str, Any] = {}  # of the heavy facts, what live messages have told
        self._lock = threading.Lock()
        self._pages: list[Page] = []
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._named = 0  # texts that the live messages have told
        self._status: tuple[Any, ...] = ()  # what the newest one said, beside rows
        self._said_at = self._measured_at = -math.inf
        self._share: float | None = None
        self._over = False

    def join(
        self,
        send: Send,
        readonly: bool = False,
        on_start: Start | None = None,
        scene: str = "overview",
    ) -> Page:
        """A page that listens once it has said hello. ``send`` is called from the feed's thread.

        ``readonly`` pages change nothing of the run. ``on_start``: what the verb "start" does, in
        the thread that called ``hear``; what it raises is told in its own words. ``scene``: the one
        to open first. Raises ValueError, which names the scenes that there are.
        """
        if scene not in SCENES:
            raise ValueError(f"there is no scene {scene!r}; there is {', '.join(SCENES)}")
        run = self._run()
        assert run is not None, "whoever joins the feed of a run has the run"
        page = Page(self, run, send, readonly, on_start, scene)
        with self._lock:
            self._pages.append(page)
        return page

    def forget(self, page: Page) -> None:
        with self._lock:
            if page in self._pages:
                self._pages.remove(page)
        self._news.set()

    def wake(self, run: Watched) -> None:
        """A page has asked for something: see to it now, if need be with a new thread."""
        with self._lock:
            self._news.set()
            if self._thread is None:
                name = "workbench page"
                self._thread = threading.Thread(
                    target=self._work, args=(run,), name=name, daemon=True
                )
                self._thread.start()

    def tell_all(self, run: Watched, send: Send) -> None:
        """Send the history of a run that is over, here and now: what a saved page holds. Raises
        what ``send`` raises.
        """
        scene = self._store.metadata.get("scene", "overview")
        page = self.join(send, readonly=True, scene=scene)
        page.ask({"type": "hello"})
        self._work(run)
        page.leave()
        if page.fault is not None:
            raise page.fault

    def _work(self, run: Watched) -> None:
        try:
            tap = self._store.tap()
            self._tally.catch_up(tap.position)
            while self._tick(run, tap):
                pass
        finally:
            with self._lock:
                self._thread = None

    def _tick(self, run: Watched, tap: Tap) -> bool:
        """One round: do what pages ask, tell them what is new. False: nobody needs another one."""
        self._news.clear()
        self._over = run.done  # first: what is taken afterwards is all there is
        with self._lock:
            pages = list(self._pages)
        for page in pages:
            page.answer(tap.position)
        told = passages(tap.take())
        self._tally.absorb(told, tap.position)
        live = self._live(run, told)
        for page in pages:
            page.tell(live)
        with self._lock:
            waiting = any(page.waits for page in self._pages)
            if not waiting and (self._over or not any(page.listens for page in self._pages)):
                self._thread = None
                return False
        if not waiting:
            self._news.wait(TICK_SECONDS)
        return True

    # ---- messages

    def _live(self, run: Watched, told: Passages) -> Message | None:
        """What is new, or None: no rows, nothing else changed, and a heartbeat is not due."""
        header = self._header(run)
        fresh = {k: v for k in HEAVY if (v := header["run"][k]) is not self._told.get(k)}
        self._told |= fresh
        header["run"] = {k: v for k, v in header["run"].items() if k not in HEAVY or k in fresh}
        doing = self._store.doing
        status = (*(header[name] for name in ("state", "words", "control", "run")), doing)
        now = time.monotonic()
        due = now - self._said_at >= HEARTBEAT_SECONDS
        if not (len(told.rows) or due or status != self._status):
            return None
        self._said_at, self._status = now, status
        texts = self._store.names(self._named)
        strings = {"first": self._named, "texts": texts}
        self._named += len(texts)
        described, payload = pack(told, self._tally.origin)
        return Message({**header, "strings": strings, **described}, payload)

    def history(self, page: Page, position: int) -> Iterator[Message]:
        """The newest rows up to ``position``, in messages; the first one says reset."""
        run, named = page.run, 0
        after, older = _cut(self._store, position)
        page.begin(older)
        for told in _stretches(self._store, position, after):
            texts = self._store.names(named)
            described, payload = pack(told, self._tally.origin)
            strings = {"first": named, "texts": texts}
            reset = {} if named else {"reset": True}
            named += len(texts)
            yield Message({**self._header(run), **reset, "strings": strings, **described}, payload)

    def _hear_of(self, metadata: Mapping[str, str]) -> None:
        """What ranks have found out since, or tell more of."""
        for name in FOUND:
            if (text := metadata.get(name)) != self._heard[name]:
                self._heard[name], self._facts[name] = text, found(text)
        if (told_of := samples_told(metadata)) != self._samples:  # one more iteration
            self._samples, self._facts["samples"] = told_of, run_facts(told_of)

    def _header(self, run: Watched) -> dict[str, Any]:
        """All of a message but its rows and their names."""
        tally, state = self._tally, getattr(run, "control_state", None)
        self._hear_of(run.store.metadata)
        told = self._facts | {"ranks": self._facts["ranks"] or tally.ranks}
        notes = [*told["notes"], *tally.notes.values()]
        if state is not None:
            told["emulated"], common = emulated(state, told["ranks"], told["levels"])
            notes = common + [note for note in notes if not note.startswith(LINK_NOTES)]
        else:
            told["emulated"] = changed(told["emulated"], tally.links)
        told["notes"] = notes
        word, words = state_of(run, self._over, told, tally.events, tally.iteration)
        origin = tally.origin
        return {
            "type": "batch", "run": told, "kinds": list(KINDS), "state": word, "words": words,
            "counters": self._counters(run), "control": control(state, getattr(run, "pids", {})),
            "origin": origin,
            "now": None if self._over or not origin else time.monotonic_ns() - origin,
            "lanes_now": lanes_now(self._store.doing, origin) if origin else [],
        }  # fmt: skip

    def _counters(self, run: Watched) -> dict[str, Any]:
        counters = self._tally.counters(self._over)
        if time.monotonic() - self._measured_at >= HEARTBEAT_SECONDS or self._over:
            self._measured_at = time.monotonic()
            self._share = _record_share(run) if self._tally.events else None
        return counters | {"record_share": self._share}


def _record_share(run: Watched) -> float | None:
    """Recording's part of the ranks' time, where it is measured."""
    if not hasattr(run, "overhead"):
        return None
    share = float(run.overhead().share)
    return share if math.isfinite(share) else None


def _cut(store: Store, position: int) -> tuple[int | None, int]:
    """The newest HISTORY_ROWS rows are those that end after this moment; how many others there are.

    By time, not by place: a file keeps its rows by rank, and every rank's last ones are wanted.
    """
    if position <= HISTORY_ROWS:
        return None, 0
    ends = store.scan().select("end_ns").head(position).collect()["end_ns"].to_numpy()
    after = int(np.partition(ends, position - HISTORY_ROWS - 1)[position - HISTORY_ROWS - 1])
    return after, int((ends <= after).sum())


def _stretches(store: Store, position: int, after: int | None) -> Iterator[Passages]:
    """The rows up to ``position`` that end after that moment, MESSAGE_ROWS at a time, or none."""
    waiting: list[Batch] = []
    rows = 0
    for piece in store.pieces(position):
        for at in range(0, piece.height, MESSAGE_ROWS):
            part = piece.slice(at, MESSAGE_ROWS)
            part = part if after is None else part.filter(pl.col("end_ns") > after)
            part = part.sort("rank", "lane", maintain_order=True)  # long stretches of one lane
            if waiting and rows + part.height > MESSAGE_ROWS:
                yield passages(waiting)
                waiting, rows = [], 0
            waiting += from_frame(part, store.number)
            rows += part.height
    yield passages(waiting)
