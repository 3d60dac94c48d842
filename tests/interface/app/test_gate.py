"""The gate of ``workbench serve`` and ``watch``: every registered route, asked in every way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interface.app.served import Reader, Served, ask, end, upgrade, websocket
from tests.pairwise import first
from tools.fuzz import routes
from tools.fuzz.routes import LOGIN, SERVERS
from workbench.interface.app.gate import Gate, normal

CLOSED = {  # what Panel and Bokeh register beside pages, and no page of ours needs
    "/favicon.ico$",
    "/components/(.*)$",
    "/static/(?!extensions/)(.*)$",
    "/static/(.*)$",
    "/static/extensions/(.*)$",
}
CLOSED_OF_A_PAGE = ("/metadata$", "/autoload.js$", "/static/(.*)$")
PAGES = {"serve": ("", "/run", "/watch", "/compare", "/partition", "/job"), "watch": ("", "/watch")}
REFUSED = (
    "a foreign Origin",
    "Origin null",
    "a foreign Host",
    "a picture elsewhere",
    "a chosen session",
)


# Without a login there is less to refuse: with all cases.
KINDS = [
    pytest.param(name, marks=[pytest.mark.full] if name == "serve" else []) for name in SERVERS
]


class Servers(dict[str, Served]):
    """Each kind of server, started by the first test that asks it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, name: str) -> Served:
        self[name] = routes.start(self._folder, name)
        return self[name].until_it_answers()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    started = Servers(tmp_path_factory.mktemp("gate"))
    yield started
    for served in started.values():
        end(served)


@pytest.mark.parametrize("name", first(1, SERVERS))
def test_routes_that_are_registered_are_known_and_only_needed_ones_stay(
    servers: Servers, name: str
) -> None:
    """A new version of Panel or Bokeh with another route: decide whether pages need it."""
    registered, stayed = servers[name].routes
    pages = PAGES["watch" if name == "watch" else "serve"]
    own = {"/login$", "/logout$"} | (
        {"/replay$", "/plotly$", "/thumbnails$"} if name != "watch" else {"/records$"}
    )
    own |= {pattern for page in pages for pattern in (f"{page}/?$", f"{page}/ws$")}
    closed = CLOSED | {page + pattern for page in pages for pattern in CLOSED_OF_A_PAGE}
    assert {*registered} == own | closed
    assert {*stayed} == own | {r"/static/(js/[\w.-]+)$", routes.PANEL_FILES}
    assert len(stayed) == len({*stayed})


@pytest.mark.parametrize("name", first(1, KINDS))
def test_every_route_asked_every_way(servers: Servers, name: str) -> None:
    served = servers[name]
    stayed = served.routes[1]
    for pattern, status in routes.answers(name, served).items():
        assert all(status[one] == 403 for one in REFUSED), (pattern, status)
        assert status["traversal"] in (403, 404), (pattern, status)
        assert status["other bytes"] in (400, 403, 404), (pattern, status)
        assert status["a huge address"] in (0, 400, 414, 431), (pattern, status)
        assert status["a huge body"] in (0, 400, 413), (pattern, status)
        assert status["other methods"] in (403, 405), (pattern, status)
        if pattern not in stayed:
            assert status["a visitor"] == status["no cookie"] == 404, (pattern, status)
            continue
        inside = _inside(pattern, name)
        assert status["a visitor"] == inside, (pattern, status)
        free = pattern in ("/login$", "/logout$")
        if pattern.endswith("/ws$"):
            assert status["no cookie"] == 403, (pattern, status)
        elif "login" in name and not free:
            assert status["no cookie"] == 302, (pattern, status)
        else:
            assert status["no cookie"] == inside, (pattern, status)
    assert Reader()(served.url + "/login")[0] in (200, 302), "it lives"
    assert "Traceback" not in served.log.read_text()
    assert "Beautiful is better" not in served.log.read_text(), "no module was imported"


def _inside(pattern: str, name: str) -> int:
    """Return the answer to a visitor who may come in."""
    if pattern.endswith("/ws$"):
        return 101
    known = {"/replay$": 404, "/logout$": 405, "/login$": 200 if "login" in name else 302}
    return known.get(pattern, 200)


def test_every_answer_carries_the_headers(servers: Servers) -> None:
    for served in [servers["serve, login"], servers["watch"]]:
        for path in ("/", "/login", "/none", "/static/js/bokeh.min.js", "/replay?id=x", "/ws"):
            _, _, headers = Reader()(served.url + path)
            assert headers["X-Frame-Options"] == "DENY", path
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert headers["Referrer-Policy"] == "same-origin", path
            assert "Server" not in headers, path


# ---- sessions


def test_head_is_answered_as_get_is(servers: Servers) -> None:
    served = servers["watch"]
    headers = {"Host": f"127.0.0.1:{served.port}", "Connection": "close"}
    for path, status in {"/": 200, "/watch": 200, "/nothing": 404}.items():
        for method in ("HEAD", "GET"):
            assert ask(served.port, method, path, headers) == status, (method, path)


def test_a_session_is_of_the_browser_that_it_was_made_for(servers: Servers) -> None:
    for name in ("serve", "watch"):
        served, mine, yours = servers[name], Reader(), Reader()
        yours(served.url + "/")
        token = mine.token(served.url + "/")
        assert websocket(served, served.url, mine, token=token) == 101
        assert websocket(served, served.url, yours, token=token) == 403, "another's cookie"
        assert websocket(served, served.url, Reader(), token=token) == 403, "no cookie"
        changed = token[:-2] + ("AA" if token[-2:] != "AA" else "BB")
        unsigned = token.partition(".")[0]
        for bad in (changed, unsigned, unsigned + ".", "none", "a.b", "{}", token + ",x"):
            assert websocket(served, served.url, mine, token=bad) == 403, bad


def test_a_token_holds_no_cookie(servers: Servers) -> None:
    from bokeh.util.token import get_token_payload

    served, reader = servers["serve, login"], Reader()
    reader.form(served.url + "/login", user="ann", password=LOGIN.partition(":")[2])
    payload = get_token_payload(reader.token(served.url + "/"))
    assert payload["cookies"] == {} and payload["headers"] == {}
    words = [cookie.value for cookie in reader.jar]
    assert len(words) == 2 and not any(word in str(payload) for word in words)


def test_a_session_cannot_be_chosen_by_a_header(servers: Servers) -> None:
    served = servers["serve"]
    assert Reader()(served.url + "/", **{"Bokeh-Session-Id": "mine"})[0] == 403
    assert Reader()(served.url + "/?bokeh-token=x")[0] == 403
    assert Reader()(served.url + "/?bokeh-absolute-url=http://evil.example")[0] == 403


def test_a_link_elsewhere_may_be_followed(servers: Servers) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    reader, url = Reader(), servers["serve"].url + "/"
    assert reader(url, **followed, **{"Sec-Fetch-Dest": "document"})[0] == 200
    assert reader(url, **followed, **{"Sec-Fetch-Dest": "iframe"})[0] == 403


def test_an_old_browser_of_http_1_0_is_asked_for_its_host(servers: Servers) -> None:
    served = servers["serve"]
    assert ask(served.port, "GET", "/", {}) in (400, 403)
    headers = upgrade(served, "x", "") | {"Sec-WebSocket-Protocol": "bokeh"}
    assert ask(served.port, "GET", "/ws", headers) == 403


def test_hosts_and_origins() -> None:
    gate = Gate.__new__(Gate)
    gate.hosts = normal(["127.0.0.1:5006", "[::1]:5006", "Lab.example", "other.example:8443"])
    for host in ("127.0.0.1:5006", "[::1]:5006", "lab.example", "LAB.example:443"):
        assert gate.knows(host, (80, 443)), host
    for host in (
        "127.0.0.1",
        "127.0.0.1:5007",
        "[::1]",
        "evil.example",
        "",
        ":5006",
        "lab.example:5006",
        "lab.example.evil.example",
        "other.example",
    ):
        assert not gate.knows(host, (80, 443)), host
    for origin in ("http://127.0.0.1:5006", "https://lab.example", "http://[::1]:5006"):
        assert gate.knows_origin(origin), origin
    for origin in (
        "null",
        "",
        "http://",
        "file://",
        "ftp://lab.example",
        "http://[::1",
        "https://other.example",
        "http://x@127.0.0.1:5006",
    ):
        assert not gate.knows_origin(origin), origin
