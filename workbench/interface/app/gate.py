"""The gate of a web server: which requests are answered at all.

    request -> a route that pages need? -> our host? -> our origin? -> logged in? -> its handler

Panel and Bokeh register more than pages need, and not all of it checks the caller: one of their
routes imports any installed module by its name. So only the routes on a list stay. Each of them has
the same check in front, and every answer carries the same headers. A session belongs to the browser
that it was made for: its token names that browser, and another websocket must not use it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import panel as pn
from bokeh.application.handlers.handler import Handler
from bokeh.settings import settings
from bokeh.util.token import check_token_signature, get_token_payload
from tornado.web import ErrorHandler, HTTPError, RequestHandler
from tornado.websocket import WebSocketHandler

from workbench.interface.app.connections import Listener
from workbench.interface.app.lines import MOST_MESSAGE, Bounded, shorten_logs
from workbench.interface.app.login import Door

UNUSED_MS = 20_000  # a page may lose its line for so long and find its session again
MOST_UNUSED = 100  # sessions whose page has not connected (yet, or any more)
MOST_BODY = 64 << 10  # bytes of a request: a login form has a hundred
MOST_HEADER = 32 << 10  # bytes of a request's first lines: an address carries an experiment
SLOW_SECONDS = 20  # for a request's first lines, and once more for its body
OWN_FILES = r"/static/(js/[\w.-]+)$"  # Bokeh's scripts
PANEL_FILES = r"/static/extensions/(panel/(?:[\w./@^~+-]|%5E)+)$"

# Scripts and styles stand in the pages, and Panel makes modules of texts (blob:). Nothing
# is compiled of text, and nothing comes from, or goes to, another server.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "worker-src": "'self' blob:",
    "connect-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{what} {where}" for what, where in POLICY.items()),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # the address of a run is the key to it
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Pages = Mapping[str, Callable[[], pn.Template]]
Route = tuple[str, type[RequestHandler], dict[str, Any]]


@dataclass(frozen=True)
class Listening:
    """A server's address, and the HOST:PORT by which browsers know it."""

    port: int
    host: str
    origins: tuple[str, ...]
    proxied: bool = False  # a proxy in front says whose requests it passes on
    listener: socket.socket | None = None  # one that listens there already


def open_server(
    pages: Pages, at: Listening, door: Door, title: str, extra: Iterable[Route] = ()
) -> Any:
    """Return Bokeh's server of these pages, not started, with no other route than theirs.

    Raises OSError if it cannot listen.
    """
    with _bound_to(at):
        server = pn.io.server.get_server(
            dict(pages),
            port=at.port,
            address=at.host,
            websocket_origin=[*at.origins],
            auth_provider=door,
            extra_patterns=[*extra],
            secret_key=settings.secret_key_bytes() or secrets.token_bytes(32),
            sign_sessions=True,
            include_headers=[],  # a page's token stands in the page: no cookie and no header does
            include_cookies=[],
            use_xheaders=at.proxied,
            websocket_max_message_size=MOST_MESSAGE,
            http_server_kwargs={
                "max_body_size": MOST_BODY,
                "max_header_size": MOST_HEADER,
                "idle_connection_timeout": SLOW_SECONDS,
                "body_timeout": SLOW_SECONDS,
            },
            unused_session_lifetime_milliseconds=UNUSED_MS,
            check_unused_sessions_milliseconds=1000,
            title=title,
        )
    shorten_logs()
    application = server._tornado
    for context in application.applications.values():
        context.application.add(_Visitor(door))
    close_routes(application, Gate(door, application, normal(at.origins)), pages, extra)
    return server


@contextlib.contextmanager
def _bound_to(at: Listening) -> Iterator[None]:
    """Make Bokeh's server take a socket that listens already, where there is one (it has an option
    for a port only), and count its callers.
    """
    server: Any = importlib.import_module("bokeh.server.server")
    bind = server.bind_sockets

    def counted(address: str, port: int) -> tuple[list[Listener], int]:
        sockets, port = ([at.listener], port) if at.listener is not None else bind(address, port)
        return [Listener(one, at.proxied) for one in sockets], port

    server.bind_sockets = counted
    try:
        yield
    finally:
        server.bind_sockets = bind


def connected(server: Any) -> int:
    """Return how many browsers have a page open."""
    contexts = server._tornado.applications.values()
    return sum(session.connection_count for each in contexts for session in each.sessions)


def needed(pages: Pages, extra: Iterable[Route]) -> list[str]:
    """Return the patterns of the routes that pages need, as Panel and Bokeh register them."""
    patterns = [pattern for page in pages for pattern in _of_page("" if page == "/" else page)]
    return [*patterns, *(f"{route[0]}$" for route in extra), "/login$", "/logout$"]


def _of_page(page: str) -> tuple[str, str]:
    return f"{page}/?$", f"{page}/ws$"


def close_routes(application: Any, gate: Gate, pages: Pages, extra: Iterable[Route] = ()) -> None:
    """Take away every route of a Bokeh application that is not needed; guard the others."""
    from bokeh.server.views.multi_root_static_handler import MultiRootStaticHandler
    from bokeh.server.views.static_handler import StaticHandler

    registered: dict[str, Any] = {}
    for rule in application.wildcard_router.rules:
        registered.setdefault(rule.matcher.regex.pattern, rule)  # the first one answers
    routes: list[Route] = []
    for pattern in needed(pages, extra):
        if (rule := registered.get(pattern)) is not None:
            routes.append((pattern, gate.guarded(rule.target), rule.target_kwargs))
    roots = registered["/static/extensions/(.*)$"].target_kwargs
    routes.append((OWN_FILES, gate.guarded(StaticHandler), {}))
    routes.append((PANEL_FILES, gate.guarded(MultiRootStaticHandler), roots))
    application.wildcard_router.rules.clear()
    application.wildcard_router.add_rules(routes)
    application.settings["default_handler_class"] = gate.guarded(ErrorHandler)
    application.settings["default_handler_args"] = {"status_code": 404}


def normal(origins: Iterable[str]) -> frozenset[str]:
    """Return HOST:PORT in small letters; one without a port stands for those of http and https."""
    result: set[str] = set()
    for origin in origins:
        host = origin.lower()
        result |= {host} if _has_port(host) else {f"{host}:80", f"{host}:443"}
    return frozenset(result)


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].rpartition(":")[2].isdecimal()


class Gate:
    """The check that stands in front of every handler."""

    def __init__(self, door: Door, application: Any, hosts: frozenset[str]) -> None:
        self.door, self.application, self.hosts = door, application, hosts

    def knows(self, host: str, ports: Iterable[int]) -> bool:
        """Return whether HOST or HOST:PORT is one of this server's own. ``ports``: those that may
        be left out.
        """
        host = host.lower()
        names = [host] if _has_port(host) else [f"{host}:{port}" for port in ports]
        return not self.hosts.isdisjoint(names)

    def knows_origin(self, origin: str) -> bool:
        """Return whether this is the origin of one of this server's pages."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        port = {"http": 80, "https": 443}.get(parts.scheme)
        return port is not None and self.knows(parts.netloc, [port])

    def check(self, handler: RequestHandler) -> None:
        """Let a request pass. Raises HTTPError, or sends its page to the login."""
        request = handler.request
        if not self.knows(request.host, (80, 443)):
            raise HTTPError(403, reason="Unknown host; --origin names further ones")
        origin = request.headers.get("Origin")
        if origin is not None and not self.knows_origin(origin):
            raise HTTPError(403, reason="Unknown origin; --origin names further ones")
        if not _is_visit(request.headers):
            raise HTTPError(403, reason="Refused to a page of another server")
        if any(name.lower().startswith("bokeh-") for name in request.query_arguments) or (
            "Bokeh-Session-Id" in request.headers
        ):
            raise HTTPError(403, reason="A session is made here, and never chosen by an address")
        open_to_all = getattr(handler, "open_to_all", False)
        if open_to_all or isinstance(handler, ErrorHandler) or self.door.user(handler):
            return
        if request.method not in ("GET", "HEAD") or isinstance(handler, WebSocketHandler):
            raise HTTPError(403, reason="Log in first")
        handler.redirect(self.door.login_address(request.uri or "/"))

    def check_session(self, handler: WebSocketHandler) -> None:
        """Let a websocket pass whose token is of this server and of this browser."""
        words = handler.request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        token = words[-1].strip()
        application = self.application
        try:
            signed = check_token_signature(
                token, secret_key=application.secret_key, signed=application.sign_sessions
            )
            visitor = get_token_payload(token).get("visitor") if signed else None
        except Exception:  # whatever does not read as a token is none
            visitor = None
        if len(words) != 2 or not visitor or visitor != self.door.visitor(handler):
            raise HTTPError(403, reason="This session is not of this browser")

    def check_room(self) -> None:
        """Raise HTTPError where too many sessions already wait for their pages."""
        contexts = self.application.applications.values()
        waiting = sum(one.connection_count == 0 for each in contexts for one in each.sessions)
        if waiting >= MOST_UNUSED:
            raise HTTPError(503, reason="Too many pages are being opened; try again in 20 s")

    def guarded(self, handler: type[Any]) -> type[Any]:
        """Return the handler with this gate in front."""
        return type(handler.__name__, (_guard_of(handler), handler), {"gate": self})


def _is_visit(headers: Any) -> bool:
    """Return whether a page of this server asks, or a reader who follows a link.

    Only browsers say so; other programs are let through.
    """
    site = headers.get("Sec-Fetch-Site", "none")
    followed = headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")
    return site in ("same-origin", "none") or followed == ("navigate", "document")


class _Guarded(RequestHandler):
    """A handler behind the gate."""

    gate: ClassVar[Gate]

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        self.gate.check(self)
        if not self._finished:
            self.check_more()
            if inspect.isawaitable(waits := super().prepare()):
                await waits

    def check_more(self) -> None:
        """Check what is asked of this kind of handler alone. Raises HTTPError."""

    def head(self, *args: str, **named: str) -> Any:
        """Answer whether GET would be, without making what it would answer with."""
        if (known := super().head).__func__ is not RequestHandler.head:  # type: ignore[attr-defined]
            return known(*args, **named)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        return self.finish()


class _GuardedPage(_Guarded):
    """A page: it makes a session."""

    def check_more(self) -> None:
        self.gate.check_room()


class _GuardedLine(_Guarded, Bounded):
    """A websocket, the line of a page to its session."""

    def check_more(self) -> None:
        self.gate.check_session(self)
        self.gate.door.connected(self)

    def check_origin(self, origin: str) -> bool:
        return self.gate.knows_origin(origin)


def _guard_of(handler: type[Any]) -> type[_Guarded]:
    from bokeh.server.views.session_handler import SessionHandler

    if issubclass(handler, WebSocketHandler):
        return _GuardedLine
    return _GuardedPage if issubclass(handler, SessionHandler) else _Guarded


class _Visitor(Handler):
    """Puts into the token of a page whose it is."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door

    def modify_document(self, doc: Any) -> None:
        """Draw nothing."""

    def process_request(self, request: Any) -> dict[str, Any]:
        return {"visitor": self._door.visitor_of(request)}
