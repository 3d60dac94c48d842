"""Websockets of pages, with bounds: on what a page may say, and on what waits to be sent to it.

A page that reads too slowly is told less (``waiting`` says how much is on its way), and one that
reads nothing at all is cut off: neither costs the server more than ``MOST_WAITING``.
"""

from __future__ import annotations

import logging
import time
from asyncio import Future
from typing import Any
from weakref import WeakValueDictionary

from bokeh.util.token import get_session_id
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketHandler

MOST_MESSAGE = 1 << 20  # bytes that a page says at once, all parts of a message together
MOST_WAITING = 64 << 20  # bytes that wait to be sent
STUCK_SECONDS = 300.0  # in which nothing of them is taken: a tab may sleep for a while
MOST_LOGGED = 500  # letters of what Bokeh logs of a message

_lines: WeakValueDictionary[str, Bounded] = WeakValueDictionary()


def waiting(session: str) -> int:
    """Return how many bytes wait to be sent to the page of this session."""
    line = _lines.get(session)
    return line.waiting if line is not None else 0


class Bounded(WebSocketHandler):
    """A websocket that is closed when it is used as no page uses it."""

    waiting = 0  # bytes
    _received = 0  # bytes of a message that is not complete
    _moved = 0.0  # when something of what waited was taken
    _due: object = None  # the next look at that

    def open(self, *args: str, **named: str) -> Any:
        assert self.ws_connection is not None
        write = self.ws_connection.write_message

        def write_message(message: Any, binary: bool = False) -> Future[None]:
            size = len(message)
            if not self.waiting:
                self._moved = time.monotonic()
                self._look_later()
            elif self.waiting + size > MOST_WAITING:
                self._cut()
            self.waiting += size
            written = write(message, binary)
            written.add_done_callback(lambda _: self._note_written(size))
            return written

        self.ws_connection.write_message = write_message  # type: ignore[method-assign]
        words = self.request.headers.get("Sec-WebSocket-Protocol", "")
        _lines[get_session_id(words.rpartition(",")[2].strip())] = self
        return super().open(*args, **named)

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


def shorten_logs() -> None:
    """Make Bokeh log only the beginning of a message that it cannot read."""
    for name in ("bokeh.server.views.ws", "bokeh.server.protocol_handler"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        if _shorten not in logger.filters:
            logger.addFilter(_shorten)


def _shorten(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if len(text) > MOST_LOGGED:
        record.msg, record.args = text[:MOST_LOGGED] + " …", ()
    return True
