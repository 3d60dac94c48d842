"""``workbench serve`` and ``watch`` as processes, and those who ask them: tests only."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, build_opener

from tests.forked import Forked

STARTS = 120.0  # seconds for a server to answer, on a busy machine
# The command, after it has printed which routes were registered, and which of them stay.
PROGRAM = """
import json
from workbench.interface.app import gate
close = gate.close_routes
def routes(application):
    return [rule.matcher.regex.pattern for rule in application.wildcard_router.rules]
def close_and_tell(application, *rest):
    registered = routes(application)
    close(application, *rest)
    print("ROUTES", json.dumps([registered, routes(application)]), flush=True)
gate.close_routes = close_and_tell
from workbench.cli import app
app()
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Served:
    """A server that answers, and what it prints."""

    process: Forked
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def routes(self) -> tuple[list[str], list[str]]:
        """The patterns that Panel and Bokeh registered, and those that stayed."""
        (line,) = (x for x in self.log.read_text().splitlines() if x.startswith("ROUTES "))
        registered, stayed = json.loads(line.partition(" ")[2])
        return registered, stayed

    @property
    def megabytes(self) -> float:
        """Return what the server's process holds, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match
        return int(match[1]) / 1e3

    def until_it_answers(self) -> Served:
        deadline = time.monotonic() + STARTS
        while "http://" not in self.log.read_text():
            late = self.process.poll() is not None or time.monotonic() > deadline
            assert not late, self.log.read_text()
            time.sleep(0.1)
        return self


# What a server imports once a page is open (serving.warm): first, where its memory is measured.
IN_USE = "import torch.distributed, plotly.graph_objs\n"


def launch(folder: Path, *command: str, first: str = "") -> Served:
    """Start ``workbench`` with these words and a port; it might not answer yet. ``first``: Python
    that it begins with.
    """
    port = free_port()
    log = folder / f"{command[0]}-{port}.log"
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "WORKBENCH_BASIC_AUTH")
    env = {k: v for k, v in os.environ.items() if k not in hidden}
    return Served(Forked(first + PROGRAM, [*command, f"--port={port}"], env, log), port, log)


def end(served: Served) -> int:
    """End it as a user does."""
    if served.process.poll() is None:
        served.process.send_signal(signal.SIGINT)
    try:
        return served.process.wait(60)
    except subprocess.TimeoutExpired:
        served.process.kill()
        raise


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


Answer = tuple[int, str, dict[str, str]]


class Reader:
    """A browser without a screen: cookies, and answers as they are."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self.opener = build_opener(HTTPCookieProcessor(self.jar), _Stay())

    def __call__(self, url: str, data: dict[str, str] | None = None, **headers: str) -> Answer:
        body = urllib.parse.urlencode(data).encode() if data is not None else None
        request = urllib.request.Request(url, body, headers)
        try:
            answer = self.opener.open(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read().decode(errors="replace"), dict(answer.headers)

    @property
    def cookies(self) -> str:
        return "; ".join(f"{one.name}={one.value}" for one in self.jar)

    def token(self, url: str) -> str:
        """The token of a page's session."""
        match = re.search(r'"token":"([^"]+)"', self(url)[1])
        return match[1] if match else "none"

    def form(self, url: str, into: str = "", **fields: str) -> Answer:
        """Fill in the form of that page, and send it, ``into`` another address."""
        return self(into or url, {**fields, "token": self.field(self(url)[1])})

    @staticmethod
    def field(text: str) -> str:
        """The hidden word of a page's form."""
        match = re.search(r'name="token" value="([^"]*)"', text)
        return match[1] if match else ""


class Line:
    """A websocket, letter by letter: it says only what it is told to, and reads when asked."""

    def __init__(self, served: Served, token: str, cookies: str, page: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        headers = upgrade(served, token, cookies)
        lines = [f"{name}: {value}" for name, value in headers.items()]
        self.socket.sendall("\r\n".join([f"GET {page}/ws HTTP/1.1", *lines, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(1)
        self.status = int(answer.split()[1])

    def is_closed(self, seconds: float = 30.0) -> bool:
        """Return whether the server closes the line by then; read what it says meanwhile."""
        self.socket.settimeout(seconds)
        try:
            while data := self.socket.recv(1 << 16):
                if data[0] == 0x88:  # a closing frame
                    return True
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


def websocket(served: Served, origin: str, reader: Reader, page: str = "/", token: str = "") -> int:
    """The status with which a websocket of that origin is answered: 101 opens it."""
    headers = upgrade(served, token or reader.token(served.url + page), reader.cookies)
    return ask(served.port, "GET", page.rstrip("/") + "/ws", headers | {"Origin": origin})


def upgrade(served: Served, token: str, cookies: str) -> dict[str, str]:
    """Headers of a request for a websocket."""
    return {
        "Host": f"127.0.0.1:{served.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": f"bokeh, {token}",
        "Cookie": cookies,
    }


def ask(port: int, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> int:
    """Send a request letter by letter, and return its status; 0: the line was closed."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            line.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            words = line.recv(4096).split()
            return int(words[1]) if len(words) > 1 else 0
    except (ConnectionError, BrokenPipeError):
        return 0
