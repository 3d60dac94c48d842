"""Input to the web app's server from a program that is not a browser: requests, and a websocket's
frames. Others are answered as before, and the server holds no more than before.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interface.app.served import IN_USE, Line, Reader, Served, end, launch
from tests.interface.app.visitor import encoded
from tools.fuzz.family import Family
from tools.fuzz.made_up import damaged, from_a_page, text

ANSWER = 30.0  # seconds for another visitor's page
MOST_GROWN = 300.0  # MB beyond what it held when it began
TOKEN_SECONDS = 100.0  # a page's token may be used for so long
PATHS = (
    "/",
    "/run",
    "/watch",
    "/partition",
    "/replay",
    "/login",
    "/logout",
    "/ws",
    "/run/ws",
    "/components/this/x/_css/y",
    "/static/js/bokeh.min.js",
    "/static/extensions/panel/panel.min.js",
    "/metadata",
    "/autoload.js",
    "/favicon.ico",
    "/static/",
    "//",
    "/../",
    "*",
    "",
)
ODD = ("%00", "%ff", "%2e%2e/", "../", "\\", "//", ";", "\xff", "%", "%zz", "?", "#", "a" * 9000)
QUERIES = (
    "id=",
    "spec=",
    "bokeh-session-id=",
    "bokeh-token=",
    "bokeh-absolute-url=",
    "next=",
    "&=",
)
METHODS = (
    "GET",
    "GET",
    "GET",
    "POST",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "get",
    "X" * 99,
)
HEADERS = (
    "Origin: null",
    "Origin: http://[",
    "Host: evil",
    "Cookie: a=b; ;;=",
    "Content-Length: -1",
    "Content-Length: 99999999999",
    "Transfer-Encoding: chunked",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: x",
    "Expect: x",
    "Sec-WebSocket-Protocol: bokeh, e30",
    "Sec-WebSocket-Protocol: bokeh, {}.x",
    "Range: bytes=-1",
    "Bokeh-Session-Id: x",
    "Sec-Fetch-Site: cross-site",
    "If-None-Match: *",
    "X: \xff\x80",
    ": x",
)


def request(chance: random.Random) -> bytes:
    """A request, most often one that a server can read."""
    path = chance.choice(PATHS)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        at = chance.randrange(len(path) + 1)
        path = path[:at] + chance.choice(ODD) + path[at:]
    if chance.random() < 0.5:
        path += "?" + chance.choice(QUERIES) + chance.choice((text(chance), "x" * 5000, "%00"))
    lines = [f"{chance.choice(METHODS)} {path} HTTP/1.1"]
    if chance.random() < 0.9:
        lines.append("Host: {host}")  # filled in by the sender
    lines += chance.sample(HEADERS, chance.choice((0, 0, 1, 2, 4)))
    body = chance.choice((b"", b"", b"user=ann&password=x&token=y", b"\xff" * 2000, b"a=%zz&"))
    if body and chance.random() < 0.8:
        lines.append(f"Content-Length: {len(body)}")
    whole = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body
    return damaged(whole, chance) if chance.random() < 0.3 else whole


def frames(chance: random.Random) -> list[tuple[int, bytes]]:
    """Frames of a websocket, (opcode, data): messages of Bokeh's protocol, not quite right."""
    sent: list[tuple[int, bytes]] = []
    for _ in range(chance.choice((1, 1, 2, 4))):
        kind = chance.choice(("PATCH-DOC", "PATCH-DOC", "PULL-DOC-REQ", "PUSH-DOC", "OK", "ACK"))
        header: Any = {"msgid": text(chance), "msgtype": kind}
        if chance.random() < 0.2:
            header["num_buffers"] = chance.choice((1, 2, -1, 10**9, "x", 0.5))
        if chance.random() < 0.1:
            header = from_a_page(chance)
        content: Any = {"events": [_event(chance) for _ in range(chance.choice((0, 1, 1, 3)))]}
        if kind == "PUSH-DOC" or chance.random() < 0.1:
            content = {"doc": from_a_page(chance)}
        parts = [json.dumps(part).encode() for part in (header, {}, content)]
        sent += [(1, part) for part in parts]
        if chance.random() < 0.2:
            sent += [(1, b'{"id":"x"}'), (2, chance.randbytes(50))]
    for _ in range(chance.choice((0, 0, 1, 2))):
        at = chance.randrange(len(sent))
        opcode, data = sent[at]
        match chance.randrange(4):
            case 0:
                sent[at] = opcode, damaged(data, chance)
            case 1:
                sent[at] = chance.choice((0, 2, 3, 8, 9, 10, 15)), data
            case 2:
                sent.insert(at, sent[at])
            case 3:
                del sent[at]
    return sent or [(1, b"")]


def _event(chance: random.Random) -> Any:
    model = {"id": chance.choice(("p1001", "p1010", "p1017", "p1019", text(chance)))}
    new = chance.choice((encoded(from_a_page(chance)), from_a_page(chance)))
    message = {"type": chance.choice(("hello", "do", "values", "tick", text(chance))), "n": 1}
    values = {"type": "map", "entries": [["model", model], ["data", encoded(message)]]}
    return chance.choice(
        (
            {
                "kind": "ModelChanged",
                "model": model,
                "attr": chance.choice(("state", "esm", "x")),
                "new": new,
            },
            {
                "kind": "MessageSent",
                "msg_type": "bokeh_event",
                "msg_data": {"type": "event", "name": "data_event", "values": values},
            },
            {"kind": "MessageSent", "msg_type": text(chance), "msg_data": new},
            {"kind": "RootAdded", "model": {"type": "object", "name": "Plot", "id": text(chance)}},
            {"kind": "RootRemoved", "model": model},
            {"kind": "TitleChanged", "title": from_a_page(chance)},
            {
                "kind": "ColumnsStreamed",
                "model": model,
                "data": new,
                "rollover": from_a_page(chance),
            },
            from_a_page(chance),
        )
    )


def frame(opcode: int, data: bytes) -> bytes:
    """A frame as a client sends it."""
    return bytes((0x80 | opcode, 0xFF)) + len(data).to_bytes(8, "big") + bytes(4) + data


class Stranger:
    """Sends what was made up to a real server, and looks whether it serves others as before."""

    def __init__(self, served: Served) -> None:
        self.served, self.other, self.reader = served, Reader(), Reader()
        self._token, self._until = "", 0.0
        self._is_well()
        self._most = served.megabytes + MOST_GROWN

    def ask(self, request: bytes) -> None:
        host = f"127.0.0.1:{self.served.port}".encode()
        answer = self._send(
            socket.create_connection(("127.0.0.1", self.served.port)),
            [request.replace(b"{host}", host)],
        )
        status = answer.split()[1:2]
        assert status != [b"500"] and b"Traceback" not in answer, answer[:2000]
        self._is_well()

    def speak(self, frames: list[tuple[int, bytes]]) -> None:
        if time.monotonic() > self._until:
            self._token = self.reader.token(self.served.url + "/")
            self._until = time.monotonic() + TOKEN_SECONDS
        line = Line(self.served, self._token, self.reader.cookies)
        assert line.status == 101
        self._send(line.socket, [frame(opcode, data) for opcode, data in frames])
        self._is_well()

    @staticmethod
    def _send(line: socket.socket, pieces: list[bytes]) -> bytes:
        with line, contextlib.suppress(OSError):
            line.settimeout(0.3)
            for piece in pieces:
                line.sendall(piece)
            return line.recv(1 << 16)
        return b""

    def _is_well(self) -> None:
        began = time.monotonic()
        assert self.other(self.served.url + "/login")[0] == 302  # costs no session
        assert time.monotonic() - began < ANSWER
        assert self.served.process.poll() is None, self.served.log.read_text()[-3000:]
        held = self.served.megabytes
        assert held < getattr(self, "_most", float("inf")), f"it holds {held:.0f} MB"


@contextlib.contextmanager
def server() -> Iterator[dict[str, Family]]:
    """A real ``workbench serve``, which lets no run last."""
    with tempfile.TemporaryDirectory(prefix="workbench-fuzz-") as folder:
        served = launch(Path(folder), "serve", "--max-runs=1", "--max-minutes=0.05", first=IN_USE)
        try:
            stranger = Stranger(served.until_it_answers())
            yield {
                "request": Family(request, stranger.ask),
                "websocket": Family(frames, stranger.speak),
            }
        finally:
            end(served)
