"""Every route of the web app's servers, asked in every way that none of them should answer.

``python -m tools.fuzz.routes`` prints the table; tests/interface/app/test_gate.py holds it to the
rules.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.interface.app.served import Reader, Served, ask, end, launch, upgrade

LOGIN = "ann:s3:cret"
SERVERS = {"serve": ["serve"], "serve, login": ["serve", "--basic-auth", LOGIN], "watch": ["watch"]}
METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "NONSENSE")
PANEL_FILES = r"/static/extensions/(panel/(?:[\w./@^~+-]|%5E)+)$"
# What stands for the part of a path that a pattern leaves open; where it stays, a file that exists.
OPEN = {
    r"/static/(js/[\w.-]+)$": "/static/js/bokeh.min.js",
    PANEL_FILES: "/static/extensions/panel/panel.min.js",
    "/components/(.*)$": "/components/this/x/_css/y",
    "/static/(?!extensions/)(.*)$": "/static/lib/bokeh.d.ts",
    "/static/extensions/(.*)$": "/static/extensions/other/x.js",
    "/static/(.*)$": "/static/css/x.css",
}


def path_of(pattern: str) -> str:
    """A path that a route's pattern answers to."""
    path = OPEN.get(pattern) or re.sub(r"\(\.\*\)", "x", pattern.rstrip("$")).replace("/?", "")
    return path or "/"


def start(folder: Path, name: str) -> Served:
    """Start one of SERVERS."""
    words = SERVERS[name]
    if words == ["watch"]:
        (folder / "trace").mkdir(exist_ok=True)
        words = ["watch", str(folder / "trace"), "--no-browser"]
    return launch(folder, *words)


class Tries:
    """The ways to ask a route; each gives the status, the worst one of several."""

    def __init__(self, served: Served, login: bool) -> None:
        self.served, self.login, self.reader = served, login, Reader()
        self._tokens: dict[str, str] = {}
        self.reader(served.url + ("/login" if login else "/watch"))
        if login:
            self.reader.form(served.url + "/login", user="ann", password=LOGIN.partition(":")[2])
        self.own = {"Host": f"127.0.0.1:{served.port}", "Cookie": self.reader.cookies}

    def all(self, path: str) -> dict[str, int]:
        """The status of every try."""
        return {
            "a visitor": self.ask(path),
            "no cookie": self.ask(path, Cookie=""),
            "a foreign Origin": self.ask(path, Origin="http://evil.example"),
            "Origin null": self.ask(path, Origin="null"),
            "a foreign Host": self.ask(path, Host=f"evil.example:{self.served.port}"),
            "a picture elsewhere": self.ask(
                path, **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
            ),
            "a chosen session": self.ask(path + "?bokeh-session-id=mine"),
            "traversal": self.worst(self.traversals(path)),
            "other bytes": self.worst(f"{path}{odd}" for odd in ("%00", "/\xff\xfe", "%ff%0d%0a")),
            "a huge address": self.ask(path + "?spec=" + "a" * 200_000),
            "a huge body": self.ask(path, "POST", body=b"a" * 2_000_000),
            "other methods": self.worst_of(self.ask(path, method) for method in METHODS),
        }

    def ask(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> int:
        own = dict(self.own)
        if path.partition("?")[0].endswith("/ws"):
            page = self.served.url + path.partition("/ws")[0] + "/"
            if page not in self._tokens:
                self._tokens[page] = self.reader.token(page)
            own = upgrade(self.served, self._tokens[page], self.reader.cookies)
        return ask(self.served.port, method, path, own | headers, body)

    def worst(self, paths: Iterable[str]) -> int:
        return self.worst_of(self.ask(path) for path in paths)

    @staticmethod
    def worst_of(statuses: Iterable[int]) -> int:
        """Of several answers the one that gives most away: what went wrong inside, then success."""
        order = (500, 200, 101, 302)
        known = [*statuses]
        return next((one for one in order if one in known), max(known))

    @staticmethod
    def traversals(path: str) -> list[str]:
        up = ("../" * 8, "..%2f" * 8, "%2e%2e/" * 8, "..%5c" * 8, "....//" * 8)
        folder = path.rpartition("/")[0]
        return [f"{folder}/{one}etc/passwd" for one in up] + [f"{path}/{up[0]}etc/passwd"]


def answers(name: str, served: Served) -> dict[str, dict[str, int]]:
    """The status of every try, by the pattern of every route that is or was registered."""
    tries = Tries(served, login="login" in name)
    registered, stayed = served.routes
    return {each: tries.all(path_of(each)) for each in dict.fromkeys([*stayed, *registered])}


def table(name: str, served: Served) -> Table:
    """Routes x tries, of one server."""
    stayed = served.routes[1]
    result = Table(title=f"workbench {name}")
    for pattern, statuses in answers(name, served).items():
        if not result.columns:
            for column in ("route", "stays", *statuses):
                result.add_column(column, overflow="fold")
        stays = "yes" if pattern in stayed else "no"
        result.add_row(pattern, stays, *(str(one or "closed") for one in statuses.values()))
    return result


def main() -> int:
    console = Console(width=max(200, Console().width), highlight=False, markup=False)
    with tempfile.TemporaryDirectory(prefix="workbench-routes-") as folder:
        for name in SERVERS:
            served = start(Path(folder), name)
            try:
                console.print(table(name, served.until_it_answers()))
            finally:
                end(served)
    return 0


if __name__ == "__main__":
    sys.exit(main())
