"""Websockets of pages, with bounds: on what a page may say, and on what waits to be sent to it.

A page that reads too slowly is told less (``waiting`` says how much is on its way), and one that
reads nothing at all is cut off: neither costs the server more than ``MOST_WAITING``.
"""

from __future__ import annotations

import json
import logging
import struct
import time
import uuid
from asyncio import Future
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from bokeh.util.token import get_session_id
from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketHandler

MOST_MESSAGE = 1 << 20  # bytes that a page says at once, all parts of a message together
MOST_WAITING = 64 << 20  # bytes that wait to be sent
STUCK_SECONDS = 300.0  # in which nothing of them is taken: a tab may sleep for a while
BLOCK = "block"  # by which the content of a message names its block of bytes
MOST_LOGGED = 500  # letters of what Bokeh logs of a message

_lines: WeakValueDictionary[str, Bounded] = WeakValueDictionary()


def waiting(session: str) -> int:
    """Return how many bytes wait to be sent to the page of this session."""
    line = _lines.get(session)
    return line.waiting if line is not None else 0


def post(session: str, content: str, block: bytes, done: Callable[[], None]) -> bool:
    """Send a patch of Bokeh's protocol, with one block of bytes, to the page of this session; from
    any thread. ``done`` is called once it is on its way. Return False where no line of ours leads
    there: it has gone, or another server shows it.

    Bokeh's own way there takes six times as long: it encodes the content for each page, and writes
    a message in five pieces.
    """
    line = _lines.get(session)
    if line is None:
        return False
    line.loop.add_callback(line.post, content, block, done)
    return True


class Bounded(WebSocketHandler):
    """A websocket that is closed when it is used as no page uses it."""

    write_lock: Any  # Bokeh's: of a message in several pieces
    waiting = 0  # bytes
    _received = 0  # bytes of a message that is not complete
    _moved = 0.0  # when something of what waited was taken
    _due: object = None  # the next look at that

    def open(self, *args: str, **named: str) -> Any:
        assert self.ws_connection is not None
        self.loop = IOLoop.current()
        write = self.ws_connection.write_message

        def write_message(message: Any, binary: bool = False) -> Future[None]:
            self._note_waiting(len(message))
            written = write(message, binary)
            written.add_done_callback(lambda _: self._note_written(len(message)))
            return written

        self.ws_connection.write_message = write_message  # type: ignore[method-assign]
        words = self.request.headers.get("Sec-WebSocket-Protocol", "")
        _lines[get_session_id(words.rpartition(",")[2].strip())] = self
        return super().open(*args, **named)

    async def post(self, content: str, block: bytes, done: Callable[[], None]) -> None:
        """Write a patch and its block of bytes in one piece."""
        header = {"msgid": uuid.uuid4().hex, "msgtype": "PATCH-DOC", "num_buffers": 1}
        texts = (json.dumps(header), "{}", content, f'{{"id": "{BLOCK}"}}')
        whole = b"".join([*(_framed(text.encode(), 1) for text in texts), _framed(block, 2)])
        try:
            with await self.write_lock.acquire():
                connection = self.ws_connection
                if connection is None or connection.stream is None or connection.is_closing():
                    return
                self._note_waiting(len(whole))
                written = connection.stream.write(whole)
                written.add_done_callback(lambda _: self._note_written(len(whole)))
        except StreamClosedError:
            return  # ``on_close`` comes
        finally:
            done()

    def _note_waiting(self, size: int) -> None:
        if not self.waiting:
            self._moved = time.monotonic()
            self._look_later()
        elif self.waiting + size > MOST_WAITING:
            self._cut()
        self.waiting += size

    def _look_later(self) -> None:
        if self._due is None and self.ws_connection is not None:
            self._due = IOLoop.current().call_later(STUCK_SECONDS, self._look)

    def _look(self) -> None:
        """Return whether the client still takes any of the data that waits for it."""
        self._due = None
        if not self.waiting:
            return
        if time.monotonic() - self._moved >= STUCK_SECONDS:
            self._cut()
        else:
            self._look_later()

    def on_close(self) -> None:
        if self._due is not None:  # it would keep all that this line holds until then
            IOLoop.current().remove_timeout(self._due)
            self._due = None
        super().on_close()

    def _note_written(self, size: int) -> None:
        self.waiting, self._moved = self.waiting - size, time.monotonic()

    def _cut(self) -> None:
        """Close the connection at once, without a farewell."""
        stream = self.ws_connection and self.ws_connection.stream
        if stream:
            stream.close()

    async def on_message(self, message: str | bytes) -> None:
        self._received += len(message)
        if self._received > MOST_MESSAGE:  # of many parts: one that is too long never gets here
            self._cut()
            return
        if (answer := super().on_message(message)) is not None:
            await answer
        receiver = getattr(self, "receiver", None)
        if receiver is None or receiver._current_consumer == receiver._HEADER:
            self._received = 0


def _framed(data: bytes, kind: int) -> bytes:
    """Return a whole message of a websocket as a server sends it: text (1) or bytes (2)."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | kind, 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 127, size)
    return head + data


def shorten_logs() -> None:
    """Make Bokeh log only the beginning of a message that it cannot read."""
    for name in ("bokeh.server.views.ws", "bokeh.server.protocol_handler"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        if _shorten not in logger.filters:
            logger.addFilter(_shorten)


def _shorten(record: logging.LogRecord) -> bool:
    try:
        text = record.getMessage()
    except Exception:  # a page's message is the format, and its places have no values
        text = str(record.msg)
        record.args = ()
    if len(text) > MOST_LOGGED:
        record.msg, record.args = text[:MOST_LOGGED] + " …", ()
    return True
