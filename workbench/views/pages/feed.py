"""The feed of a run: what its pages are told, in messages, while it runs and afterwards.

    store.tap() --25 times per second--> pack, once --> every page that listens

A page joins with a function that sends. It says hello and is answered with the history, the newest
rows of the run, and from there on with each batch as it arrives: no row twice, none left out. One
thread a run sends it all; it begins with the first hello and ends when no page listens, or when the
run is over and every page knows. A page that comes later finds the history just the same. A page
that was silent for a while asks (Page.hear): no message that is lost on its way, be it the last
one, leaves a picture of what no longer is.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
import uuid
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from workbench.analysis.bottleneck import find as find_bottleneck
from workbench.common import threads
from workbench.common.errors import SpecError
from workbench.recording.events import KINDS
from workbench.store.event_store import Store, Tap
from workbench.store.holds import STILL, holds_of
from workbench.store.trace_folder import PRECISION
from workbench.views.packing import Message, Passages, pack, passages
from workbench.views.pages import past
from workbench.views.pages.commands import Orders
from workbench.views.pages.facts import (
    Watched,
    carrier_notes,
    circle_of,
    control,
    facts,
    failure_of,
    lanes_now,
    ranks_noted,
    slow_ranks,
    standing,
    state_of,
)
from workbench.views.pages.level_of_detail import LevelOfDetail
from workbench.views.pages.link_facts import changed, emulated, link_notes
from workbench.views.pages.no_run import nothing
from workbench.views.pages.page import Page, Ready, Send, Start, Trials
from workbench.views.pages.tally import Tally
from workbench.views.scenes import RunRecord, first_scene, reported, scenes

__all__ = ["Feed", "Page", "Send", "Start", "feed", "nothing"]

REST_SECONDS = 0.035  # between two messages: a page draws what is new 20 to 30 times per second
TICK_SECONDS = 0.04  # and so long again, at most, for rows to come
SETTLE_SECONDS = 0.004  # until the rows of all ranks are there
MOST_MESSAGES = 250  # per second, to all pages together: of many, each gets fewer and longer ones
STANDS_SECONDS = 0.5  # in the same: of many ranks, a page is told of those that stand
HEARTBEAT_SECONDS = 1.0  # tells a page the driver's clock, and that the driver lives

_feeds: weakref.WeakKeyDictionary[Watched, Feed] = weakref.WeakKeyDictionary()
_feeds_lock = threading.Lock()


def feed(run: Watched) -> Feed:
    """Return the feed of ``run``: one, however many pages show it."""
    with _feeds_lock:
        if run not in _feeds:
            _feeds[run] = Feed(run)
        return _feeds[run]


class Feed:
    """The messages of one run, for all of its pages."""

    def __init__(self, run: Watched) -> None:
        self._run, self._store = weakref.ref(run), run.store
        self._scenes = scenes()
        # First: what is reported in between is read once more, not missed.
        self._reported = reported(self._scenes, run.store.metadata)
        self._facts = {"id": uuid.uuid4().hex, **facts(run.store.metadata)}
        self._tally = Tally(run.store, slow_ranks(run.store.metadata))
        self._past, self._detail = past.Past(run.store), LevelOfDetail()
        self._heavy = [key for scene in self._scenes.values() for key in scene.heavy]
        self._last_heavy: dict[str, Any] = {}  # of the heavy facts, what live messages have told
        self._lock = threading.Lock()
        self._pages: list[Page] = []
        self.orders = Orders()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._named = 0  # texts that the live messages have told
        self._status: tuple[Any, ...] = ()  # what the newest one said, beside rows
        self._said_at = self._measured_at = self._lanes_at = self._due = -math.inf
        self._share: float | None = None
        self._over = False
        self._bottleneck: dict[str, Any] | None = None  # of a run that is over

    @property
    def id(self) -> str:
        """The id by which pages know the run."""
        return str(self._facts["id"])

    def join(
        self,
        send: Send,
        readonly: bool = False,
        on_start: Start | None = None,
        scene: str = "overview",
        ready: Ready = lambda: True,
        idle: Ready = lambda: True,
        trials: Trials | None = None,
    ) -> Page:
        """Add a page, which listens once it has said hello.

        ``send`` is called from the feed's thread. ``readonly`` pages change nothing of the run.
        ``on_start``: called for the verb "start", in the thread that called ``hear``; the page
        shows its error's text. ``scene``: the one to open first. ``ready``: whether the page takes
        more now; the rest waits, up to a bound. ``idle``: whether all that it was sent is on its
        way. ``trials``: what it can run beside it.
        Raises SpecError, which names the scenes.
        """
        if scene not in self._scenes:
            raise SpecError(f"there is no scene {scene!r}; there is {', '.join(self._scenes)}")
        run = self._run()
        assert run is not None, "only a page that has the run joins its feed"
        page = Page(self, run, send, readonly, on_start, scene, ready, idle, trials=trials)
        self.remember(page)
        return page

    def remember(self, page: Page) -> None:
        with self._lock:
            if page not in self._pages:
                self._pages.append(page)

    def forget(self, page: Page) -> None:
        with self._lock:
            if page in self._pages:
                self._pages.remove(page)
        self._news.set()

    def wake(self, run: Watched) -> None:
        """Answer a page's request now, with a new thread if there is none."""
        with self._lock:
            self._news.set()
            if self._thread is None:
                name = "workbench page"
                self._thread = threads.start(partial(self._serve, run), name)

    def tell_all(self, run: Watched, send: Send) -> None:
        """Send the history of a run that is over, here and now: what a saved page holds. Raises
        what ``send`` raises.
        """
        scene = first_scene(self._store.metadata)
        self._past.rows = past.SAVED_ROWS
        page = self.join(send, readonly=True, scene=scene)
        page.ask({"type": "hello"})
        self._work(run)
        page.leave()
        if page.fault is not None:
            raise page.fault

    def _serve(self, run: Watched) -> None:
        try:
            self._work(run)
        except Exception:  # a fault of ours; pages find that nothing comes, and ask
            traceback.print_exc(file=sys.stderr)
            with self._lock:
                for page in self._pages:
                    page.startle()

    def _work(self, run: Watched) -> None:
        try:
            tap = self._store.tap()
            self._tally.catch_up(tap.position)
            self._detail.due(self._tally.per_second(self._over), time.monotonic())
            while self._tick(run, tap):
                pass
        finally:
            with self._lock:  # another thread may have begun since this one's last message
                if self._thread is threading.current_thread():
                    self._thread = None

    def _tick(self, run: Watched, tap: Tap) -> bool:
        """Do one round: execute commands of pages, send what is new.

        Returns False if no page needs another round.
        """
        self._news.clear()
        self._over = run.done  # first: what is taken afterwards is all there is
        with self._lock:
            pages = list(self._pages)
        for page in pages:
            page.answer(tap.position)
        live, now = None, time.monotonic()
        is_due = self._over or now >= self._due  # else a page has woken it, and is answered
        if is_due:
            live = self._live(run, self._new_rows(tap), any(page.owed for page in pages))
        for page in pages:
            page.tell(live)
        self._past.rest()
        with self._lock:
            pages = list(self._pages)
            waiting = any(page.waits for page in pages)
            behind = any(page.behind for page in pages)
            listeners = sum(page.listens for page in pages)
            if not (waiting or behind) and (self._over or not listeners):
                self._thread = None
                return False
        if is_due:
            self._due = now + max(REST_SECONDS, listeners / MOST_MESSAGES)
        if not waiting and self._rested(pages):
            self._await_rows(tap)
        return True

    def _new_rows(self, tap: Tap) -> Passages:
        """Return what pages are told of the rows that have come, and count them."""
        now = time.monotonic()
        due = self._detail.due(self._tally.per_second(self._over), now)
        if not (due or self._over):
            return passages([])
        new_rows = passages(tap.take())
        self._tally.absorb(new_rows, tap.position)
        return self._detail.take(new_rows, now)

    def _rested(self, pages: Sequence[Page]) -> bool:
        """Wait until the next rows are due: most pages have been sent what was before, unless that
        takes too long. Returns False if a page has something to say before that.
        """
        late = self._due + HEARTBEAT_SECONDS
        while not self._news.wait(max(0.0, self._due - time.monotonic())):
            if time.monotonic() > late or 2 * sum(one.idle() for one in pages) >= len(pages):
                return True
            self._news.wait(SETTLE_SECONDS)
        return False

    def _await_rows(self, tap: Tap) -> None:
        """Wait until the collector has emptied the rings, which it does as often: rows that are
        sent right then are younger than those that wait for a tick of the feed's own.
        """
        arrived, tap.arrived = tap.arrived, self._news  # whichever comes first
        if not arrived.is_set():
            self._news.wait(TICK_SECONDS)
        tap.arrived = arrived
        time.sleep(SETTLE_SECONDS)

    # ---- messages

    def _live(self, run: Watched, new_rows: Passages, owed: bool) -> Message | None:
        """Return the new rows as a message; None if nothing is due.

        A message is due with new rows or other changes, for a page that asked (``owed``), and as a
        heartbeat.
        """
        header = self._header(run)
        fresh = {
            k: v for k in self._heavy if (v := header["run"][k]) is not self._last_heavy.get(k)
        }
        self._last_heavy |= fresh
        header["run"] = self._light(header["run"], fresh)
        doing = [] if self._detail.folds else self._store.doing
        status = (*(header[name] for name in ("state", "words", "control", "run")), doing)
        now = time.monotonic()
        due = owed or now - self._said_at >= HEARTBEAT_SECONDS
        if not (len(new_rows.rows) or due or status != self._status):
            return None
        self._said_at, self._status = now, status
        texts = self._store.names(self._named)
        strings = {"first": self._named, "texts": texts}
        self._named += len(texts)
        described, payload = pack(new_rows, self._tally.origin)
        return Message({**header, "strings": strings, **described}, payload)

    def history(self, page: Page, position: int, short: bool = False) -> Iterator[Message]:
        """Yield the newest rows up to ``position``, in messages; the first one says reset, and
        tells all facts. ``short``: a few rows, for a page that cannot follow.
        """
        run, named = page.run, 0
        listeners = sum(one.listens for one in self._pages)
        most, origin = past.SHORT_ROWS if short else past.most_rows(listeners), self._tally.origin
        if self._detail.folds and not self._over:
            older, blocks = self._past.newest(position, origin, past.SHORT_ROWS)
        else:
            older, blocks = self._past.before(position, origin, most, listeners > 1)
        page.begin(older)
        for described, payload in blocks:
            header, texts = self._header(run), self._store.names(named)
            if named:
                header["run"] = self._light(header["run"])
            reset = {} if named else {"reset": True}
            strings = {"first": named, "texts": texts}
            named += len(texts)
            yield Message({**header, **reset, "strings": strings, **described}, payload)

    def _light(self, facts: dict[str, Any], fresh: Collection[str] = ()) -> dict[str, Any]:
        """Leave out the heavy facts, which a page keeps, but the ``fresh`` ones."""
        return {k: v for k, v in facts.items() if k not in self._heavy or k in fresh}

    def _hear_of(self, metadata: Mapping[str, str]) -> None:
        """Ask the scenes again for which ranks have reported something since."""
        before, self._reported = self._reported, reported(self._scenes, metadata)
        for name, text in self._reported.items():
            if text != before[name]:
                self._facts |= self._scenes[name].facts(RunRecord(metadata))

    def _header(self, run: Watched) -> dict[str, Any]:
        """Return everything in a message but its rows and their names."""
        tally, state = self._tally, getattr(run, "control_state", None)
        self._hear_of(run.store.metadata)
        ranks = self._facts["ranks"] or max(tally.ranks, ranks_noted(run.store.metadata))
        header_facts = self._facts | {"ranks": ranks}
        precision = run.store.metadata.get(PRECISION)
        notes = [
            *([precision] if precision else []),
            *carrier_notes(run.store.metadata),
            *header_facts["notes"],
            *tally.badges,
        ]
        if state is not None:
            before = link_notes(header_facts["link_levels"])
            header_facts["emulated"], levels = emulated(
                state, header_facts["ranks"], header_facts["levels"]
            )
            header_facts["link_levels"] = levels
            notes = link_notes(levels) + [note for note in notes if note not in before]
        else:
            header_facts["emulated"] = changed(header_facts["emulated"], tally.links)
        header_facts["notes"] = notes
        if circle := circle_of(run.store.metadata):
            header_facts["waiting"] = circle
        if self._over and (cost := self._cost(run.store)):
            header_facts["bottleneck"] = cost
        word, words = state_of(run, self._over, header_facts, tally.events, tally.iteration)
        origin = tally.origin
        if origin and (holds := holds_of(run.store.metadata, STILL)):
            header_facts["holds"] = [[ns - origin for ns in hold] for hold in holds]
        return {
            "type": "batch",
            "run": header_facts,
            "kinds": list(KINDS),
            "state": word,
            "words": words,
            "failure": failure_of(run, self._over),
            "counters": self._counters(run),
            "control": control(state, getattr(run, "pids", {})),
            "origin": origin,
            "now": None if self._over or not origin else time.monotonic_ns() - origin,
            **self._lanes_now(origin),
        }

    def _lanes_now(self, origin: int) -> dict[str, Any]:
        """Return what the lanes are in; where rows are folded, seldom, and those that stand."""
        doing, now = self._store.doing if origin else [], time.monotonic()
        if self._detail.folds:
            if now - self._lanes_at < STANDS_SECONDS:
                return {}
            doing = standing(doing, STANDS_SECONDS)
        self._lanes_at = now
        return {"lanes_now": lanes_now(doing, origin)}

    def _cost(self, store: Store) -> dict[str, Any]:
        """Return what cost a run that is over most of its time; {} where that cannot be said."""
        if self._bottleneck is None:
            bottleneck = find_bottleneck(store.scan(), store.metadata)
            self._bottleneck = bottleneck.for_page() if bottleneck else {}
        return self._bottleneck

    def _counters(self, run: Watched) -> dict[str, Any]:
        counters = self._tally.counters(self._over)
        if time.monotonic() - self._measured_at >= HEARTBEAT_SECONDS or self._over:
            self._measured_at = time.monotonic()
            self._share = _record_share(run) if self._tally.events else None
        detail = self._detail
        folded = list(detail.folded) if detail.folds and detail.folded[0] else None
        return counters | {"record_share": self._share, "folded": folded}


def _record_share(run: Watched) -> float | None:
    """Return recording's share of the ranks' time; None if it is not measured."""
    if not hasattr(run, "overhead"):
        return None
    share = float(run.overhead().share)
    return share if math.isfinite(share) else None
