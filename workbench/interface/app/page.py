"""The common parts of all pages: the view, the components around it, and their frame."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import panel as pn
import param
from panel.custom import AnyWidgetComponent
from panel.io.resources import LOCAL_DIST

from workbench.front_end.assets import stage_module, theme
from workbench.front_end.javascript import bundle, needed
from workbench.interface.app.comparisons import Comparisons
from workbench.interface.app.lines import BLOCK, post, waiting
from workbench.interface.app.plotly_script import ADDRESS
from workbench.interface.app.runs import Runs
from workbench.interface.app.turns import Turns, guarded
from workbench.views.packing import Message
from workbench.views.pages.feed import Page, Start, feed, nothing
from workbench.views.pages.page import Trials

HERE = Path(__file__).parent
REFRESH_MS = 1000
MUCH = 2 << 20  # bytes on their way to a page, beyond which it is sent no more for now
LOADING = 10.0  # seconds that a page may take to load and connect; so long it counts as there


@dataclass(frozen=True)
class Site:
    """The state that all pages of one server share."""

    runs: Runs
    cookie: str = "visitor"  # under which a page's token names its browser
    form_word: Callable[[str], str] | None = None  # of a browser's forms, where there is a login
    warm: Callable[[], None] | None = None  # prepares the next run; does so once
    jobs: Any = None  # of others, to be watched (jobs.py); None: none
    pool: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 6, "page"))
    turns: Turns = field(default_factory=Turns)  # for what reads events and draws

    @cached_property
    def comparisons(self) -> Comparisons:
        """The comparisons of this server."""
        return Comparisons(self.runs)

    @property
    def logout(self) -> str:
        """Return the data that this session's page needs to log out; empty without login."""
        return self.form_word(browser(self.cookie)) if self.form_word else ""

    def work(self, task: Callable[[], None]) -> None:
        """Run the function in another thread, since starting ranks takes time."""
        self.pool.submit(guarded, task)

    def opened(self) -> None:
        """Prepare the next run, now that a page is open in a browser."""
        if self.warm is not None:
            self.work(self.warm)

    def close(self) -> None:
        """Begin nothing more."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.turns.close()


class Module(AnyWidgetComponent):
    """A component whose JavaScript is plain: Panel need not translate it in the reader's browser,
    which for the stage takes a third of a second.
    """

    def _get_properties(self, doc: Any) -> dict[str, Any]:
        properties: dict[str, Any] = super()._get_properties(doc)
        return {**properties, "bundle": hashlib.sha256(properties["esm"].encode()).hexdigest()}


class Stage(Module):
    """The stage in a page. ``watch`` a run; watching another one leaves the first."""

    opens = param.String("", doc="The scene whose shape it has until rows come.")

    _esm = stage_module()
    _stylesheets = [theme()]  # noqa: RUF012 - Panel's own form

    def __init__(self, **params: Any) -> None:
        super().__init__(**{"sizing_mode": "stretch_width", **params})
        self._page: Page | None = None
        self._alone = nothing()  # what is drawn where there is no run
        context = document().session_context if document() else None
        self._session = str(context.id) if context else ""
        self._pushed = self._arrived = 0  # bytes; the server's loop has come to so many of them

    def takes_more(self) -> bool:
        """Return whether the page is fast enough to be sent more now."""
        return self._pushed - self._arrived + waiting(self._session) < MUCH

    def is_idle(self) -> bool:
        """Return whether the server's loop has come to all that the page was sent."""
        return self._pushed == self._arrived

    def draw(self, message: Message) -> None:
        """Show this instead of a run."""
        self.leave()
        self._alone = message
        if self._models:
            self._push(message)

    def watch(
        self,
        run: Any,
        scene: str = "overview",
        readonly: bool = False,
        on_start: Start | None = None,
        trials: Trials | None = None,
    ) -> None:
        """Show ``run``: a page that is open hears of it at once, another one when it says hello."""
        self.leave()
        self.opens = scene
        self._page = feed(run).join(
            self._push,
            readonly=readonly,
            on_start=on_start,
            scene=scene,
            ready=self.takes_more,
            idle=self.is_idle,
            trials=trials,
        )
        if self._models:
            self._page.hear({"type": "hello"})

    def refresh(self) -> None:
        """Send the facts of the run again."""
        if self._page:
            self._page.refresh()

    def leave(self) -> None:
        """Send nothing more. The run goes on."""
        if self._page:
            self._page.leave()
        self._page = None

    def _push(self, message: Message) -> None:
        """Send a message; what all pages of a run get alike was packed once for all of them."""
        if message.common is None:
            header = json.loads(json.dumps(message.header))  # as in Jupyter: keys are texts
            self.send({**header, "buffers": [message.payload] if message.payload else []})
            return
        packet, own = message.common.packet, json.dumps(message.own, allow_nan=False)
        size = len(packet)
        for name in {model.ref["id"] for model, _ in [*self._models.values()]}:
            self._pushed += size
            content = event_text(name, own)
            if not post(self._session, content, packet, partial(self._note_arrival, size)):
                self._note_arrival(size)
                self.send({"own": own, "buffers": [packet]})  # no line of ours leads there
                return

    def _note_arrival(self, size: int) -> None:
        self._arrived += size

    def _handle_msg(self, data: Any) -> None:
        if self._page:
            self._page.hear(data)
        elif isinstance(data, dict) and data.get("type") == "hello":
            self._push(self._alone)


def event_text(model: str, own: str) -> str:
    """Return the content of a patch of Bokeh's that has this model's JavaScript hear of ``own``,
    which is JSON, and of the message's block: as Panel's ``send`` would write it.
    """
    data = [["own", own], ["buffers", [{"type": "bytes", "data": {"id": BLOCK}}]]]
    values = [["model", {"id": model}], ["data", {"type": "map", "entries": data}]]
    event = {"type": "event", "name": "esm_event", "values": {"type": "map", "entries": values}}
    patch = {"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": event}
    return json.dumps({"events": [patch]})


class Part(Module):
    """A JavaScript component of a page: ``state`` goes there, ``heard`` comes back.

    A message can be lost while a page loads (Panel writes past Bokeh's queue). So a component says
    hello now and then, with the number of the newest message that it has, and gets the rest again.
    """

    _stylesheets = [(HERE / "parts" / "parts.css").read_text(encoding="utf-8")]  # noqa: RUF012

    state = param.Dict({}, doc="What its JavaScript draws; n counts the changes.")

    def __init__(
        self, heard: Callable[[Mapping[str, Any]], None] | None = None, **params: Any
    ) -> None:
        super().__init__(**{"sizing_mode": "stretch_width", **params})
        self._heard = heard
        self._lock = threading.Lock()
        self._calls: list[
            tuple[Callable[[], None], bool]
        ] = []  # what begins once the page is there
        self._there = False

    def tell(self, **news: Any) -> None:
        """Change the component's message; send it only if it changed."""
        with self._lock:
            if any(self.state.get(name, self) != value for name, value in news.items()):
                state = {**self.state, **news}  # n first: param compares up to what differs
                self.state = {"n": state.pop("n", 0) + 1, **state}

    def go(self, address: str) -> None:
        """Send the reader to another page."""
        self.tell(address=address)

    def follow(self, call: Callable[[], None], *, at_once: bool = True) -> None:
        """Call it once the page is there, and every second from then on; not ``at_once``: only
        after that second, in which the page has what matters more to draw.
        """
        self._calls.append((call, at_once))

    def _handle_msg(self, data: Any) -> None:
        if not isinstance(data, dict):
            return
        if data.get("type") == "hello":
            self._greet(data.get("n"))
        elif self._heard:
            self._heard(data)

    def _greet(self, n: object) -> None:
        if n != self.state.get("n"):
            self.tell(echo=[n, self.state.get("n")])  # new each time: an answer may be lost, too
        if not self._there:
            self._there = True
            for call, at_once in self._calls:
                if at_once:
                    call()
                # Bokeh's own: Panel's says of each call that the whole server is busy
                document().add_periodic_callback(call, REFRESH_MS)


def _part(name: str) -> str:
    """Return a component's JavaScript, with all that it imports, as one module."""
    texts = needed([name], lambda file: (HERE / "parts" / file).read_text(encoding="utf-8"))
    return bundle(texts, [name]).exporting(name)


class FormPart(Part):
    _esm = _part("form.js")


class PastPart(Part):
    _esm = _part("past.js")


class ComparisonsPart(Part):
    _esm = _part("comparisons.js")


class JobsPart(Part):
    _esm = _part("jobs.js")


class BarPart(Part):
    _esm = _part("bar.js")


class PartitionPart(Part):
    _esm = _part("partition.js")


class TabsPart(Part):
    _esm = _part("tabs.js")


class ChartPart(Part):
    """A figure of Plotly's; nothing until there is one."""

    _esm = _part("chart.js")

    def draw(self, figure: Any | None) -> None:
        """Draw this figure of Plotly's, with its own height; None: nothing."""
        if figure is None:
            self.tell(figure="")
        else:
            self.tell(figure=figure.to_json(), height=figure.layout.height, script=ADDRESS)


class Ground(Module):
    """Knows whether the page is light or dark."""

    _esm = _part("ground.js")

    dark = param.Boolean(None, allow_None=True, doc="Whether the page's ground is dark.")

    @property
    def known(self) -> bool:
        """Return whether the page has said so; a chart drawn earlier may be white on dark."""
        return self.dark is not None

    @property
    def theme(self) -> str:
        return "dark" if self.dark else "light"


@cache
def tokens() -> str:
    """Return the stage's colors, sizes and font for the page around it: one source for both."""
    block = theme().partition("{")[2].partition("}")[0]
    return " ".join(re.findall(r"--[\w-]+:[^;]+;", block))


@cache
def _style() -> str:
    return (HERE / "pages.css").read_text(encoding="utf-8")


@cache
def _frame() -> str:
    return (HERE / "page.html").read_text(encoding="utf-8")


def frame(
    title: str, places: Mapping[str, Any], lead: tuple[str, ...] = (), logout: str = ""
) -> pn.Template:
    """Build a page: header, the lines of ``lead``, then one component below the other, by name."""
    page = pn.Template(_frame())
    page.add_variable("tokens", tokens())
    page.add_variable("style", _style())
    page.add_variable("lead", lead)
    page.add_variable("places", list(places))
    page.add_variable("samplers", bool(lead))  # a page that may lead to that of partitions
    page.add_variable("logout", logout)
    page.add_variable("apple_icon", "")
    page.add_variable("app_favicon", "data:,")
    page.add_variable("app_title", title)
    for name, shown in places.items():
        page.add_panel(name, shown)
    document().title = title
    # Panel says so only in an answer with the page. A page whose line was lost for long makes its
    # session again by websocket, and would be sent to another server for its styles.
    document().template_variables["dist_url"] = LOCAL_DIST
    return page


def presence() -> Callable[[], bool]:
    """Return the function that says whether this session's page is open in a browser.

    A page may lose its connection and find it again while the session lives; one that has never
    connected may still be loading.
    """
    context, began, met = document().session_context, time.monotonic(), False

    def there() -> bool:
        nonlocal met
        session = context.session
        connected = session is not None and session.connection_count > 0
        met = met or connected
        return connected or (not met and time.monotonic() - began < LOADING)

    return there


def document() -> Any:
    """Return Bokeh's document of the current session."""
    return pn.state.curdoc


def address_value(name: str) -> str:
    """Return the value of ``?name=`` in the address of this session's page; "": none."""
    values = pn.state.session_args.get(name, [])
    return values[0].decode(errors="replace") if values else ""


def browser(name: str) -> str:
    """Return the browser that this session belongs to, as its token names it."""
    context = document().session_context if document() else None
    return str(context.token_payload.get(name, "")) if context else ""
