"""A page of the web app without a browser: it speaks Bokeh's protocol, and says hello as parts do.

Tests only: many of them watch a run, one starts a run after the other, one reads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    websocket_connect,
)

from tests.interface.app.served import Reader, Served

HELLO_SECONDS = 3.0  # parts repeat it, twice as late each time, and the stage until it is heard
SELDOM_SECONDS = 24.0
MOST = 256 << 20  # bytes of a message that a page takes


class Visitor:
    """One page that is open. ``parts``: what the server told each of them, by its class."""

    def __init__(self, served: Served, path: str = "/", reader: Reader | None = None) -> None:
        self.served, self.path, self.reader = served, path, reader or Reader()
        self.ids: dict[str, str] = {}  # a part's model, by the name of its class
        self.parts: dict[str, dict[str, Any]] = {}
        self._owner: dict[str, str] = {}  # a part's class, by the id of its data
        self.events = self.bytes = 0
        self.batches: list[int] = []  # the numbers of messages to the stage
        self.acknowledged = self.closed = False
        self._heard, self._speaks = asyncio.Event(), asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Visitor:
        """Load the page, connect, and say hello from every part."""
        url = self.served.url + self.path
        token = await asyncio.to_thread(self.reader.token, url)
        page = self.path.partition("?")[0].rstrip("/")
        request = HTTPRequest(
            f"ws://127.0.0.1:{self.served.port}{page}/ws",
            headers={"Cookie": self.reader.cookies, "Origin": self.served.url},
        )
        self.line: WebSocketClientConnection = await websocket_connect(
            request, subprotocols=["bokeh", token], max_message_size=MOST
        )
        self._tasks = [asyncio.create_task(self._listen())]
        await self.until(lambda: self.acknowledged, "that the line is open")
        await self.say("PULL-DOC-REQ", {})
        await self.until(lambda: self.ids, "its document")
        await self.event("document_ready", None)
        self._tasks.append(asyncio.create_task(self._greet()))
        return self

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.line.close()

    def stop_reading(self) -> None:
        """Read nothing more, and go on saying hello."""
        protocol: Any = self.line.protocol
        self._tasks[0].cancel()
        protocol.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        protocol.stream.read_bytes = lambda *_, **__: asyncio.get_event_loop().create_future()

    def is_cut_off(self) -> bool:
        """Return whether the server has closed the line."""
        protocol: Any = self.line.protocol
        return protocol is None or protocol.stream.closed()

    async def until(self, condition: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
        """Wait for something to be told."""
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            assert not self.closed, f"the server closed the line before {what}"
            assert left > 0, f"not within {seconds:.0f} s: {what}; told {self.parts}"
            self._heard.clear()
            try:
                await asyncio.wait_for(self._heard.wait(), min(left, 1.0))
            except TimeoutError:
                continue

    async def tell(self, part: str, message: dict[str, Any]) -> None:
        """Say this from a part."""
        values = [["model", {"id": self.ids[part]}], ["data", encoded(message)]]
        await self.event("data_event", values)

    async def event(self, name: str, values: Any) -> None:
        message = {
            "type": "event",
            "name": name,
            "values": {"type": "map", "entries": values or []},
        }
        events = [{"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": message}]
        await self.say("PATCH-DOC", {"events": events})

    async def say(self, kind: str, content: dict[str, Any]) -> None:
        """Send a message of Bokeh's protocol."""
        header = {"msgid": uuid.uuid4().hex, "msgtype": kind}
        async with self._speaks:
            for part in (header, {}, content):
                await self.line.write_message(json.dumps(part))

    async def _greet(self) -> None:
        with contextlib.suppress(WebSocketClosedError):
            await self._say_hello()

    async def _say_hello(self) -> None:
        wait = HELLO_SECONDS
        while not self.closed:
            for part in self.ids:
                if part == "Stage" and self.batches:
                    continue
                n = self.parts.get(part, {}).get("n", 0)
                known = {} if part == "Stage" else {"n": n}
                token = {"token": "once"} if part == "Stage" else {}
                await self.tell(part, {"type": "hello", **known, **token})
            await asyncio.sleep(wait)
            wait = min(2 * wait, SELDOM_SECONDS)

    async def _listen(self) -> None:
        parts: list[Any] = []  # of a message: header, metadata, content, buffers
        while (fragment := await self.line.read_message()) is not None:
            self.bytes += len(fragment)
            parts.append(fragment)
            if len(parts) < 3:
                continue
            header = json.loads(parts[0])
            if len(parts) < 3 + 2 * header.get("num_buffers", 0):
                continue
            self._take(header, parts[2])
            parts = []
            self._heard.set()
        self.closed = True
        self._heard.set()

    def _take(self, header: dict[str, Any], text: str) -> None:
        if header["msgtype"] == "ACK":
            self.acknowledged = True
        elif header["msgtype"] == "PULL-DOC-REPLY":
            self._learn(json.loads(text))
        elif header["msgtype"] == "PATCH-DOC":
            for event in json.loads(text)["events"]:
                self.events += 1
                if event["kind"] == "MessageSent" and event["msg_data"]["name"] == "esm_event":
                    data = decoded(dict(event["msg_data"]["values"]["entries"])["data"])
                    self.batches += [json.loads(data["own"])["seq"]] if "own" in data else []
                owner = self._owner.get((event.get("model") or {}).get("id", ""))
                if event["kind"] == "ModelChanged" and owner and event["attr"] == "state":
                    self.parts[owner] = decoded(event["new"])

    def _learn(self, part: Any) -> None:
        """Find the parts in a document."""
        if isinstance(part, list):
            for one in part:
                self._learn(one)
        elif isinstance(part, dict):
            attributes = part.get("attributes") or {}
            if str(part.get("name", "")).endswith("AnyWidgetComponent"):
                name = attributes.get("class_name") or re.split(r"\W", part["name"])[-1]
                data = attributes.get("data") or {}
                self.ids[name], self._owner[data.get("id", "")] = part["id"], name
                state = (data.get("attributes") or {}).get("state")
                self.parts[name] = decoded(state) if state else {}
            for one in part.values():
                self._learn(one)


def encoded(value: Any) -> Any:
    """A value as Bokeh's pages send it."""
    if isinstance(value, dict):
        return {"type": "map", "entries": [[key, encoded(one)] for key, one in value.items()]}
    return [encoded(one) for one in value] if isinstance(value, list) else value


def decoded(value: Any) -> Any:
    """The same, as it arrives."""
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if isinstance(value, dict) and value.get("type") == "map":
        return {decoded(key): decoded(one) for key, one in value.get("entries", [])}
    return value
