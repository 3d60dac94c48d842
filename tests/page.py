"""A page without a browser: it takes the feed's messages and keeps the table that they tell."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from tests.live import PATIENCE
from workbench.store.table import EMPTY, SCHEMA
from workbench.views.packing import Message

_WIDTH = {"f8": 8, "i4": 4, "u4": 4, "i2": 2, "u2": 2, "u1": 1}


def columns(layout: list[Any], count: int, block: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The columns of a layout from ``at`` on, and where the next ones begin."""
    result = {}
    for name, code in layout:
        result[name] = np.frombuffer(block, "<" + code, count, at)
        at += -(-count * _WIDTH[code] // 8) * 8
    return result, at


def unpack(header: dict[str, Any], block: bytes, texts: list[str]) -> pl.DataFrame:
    """The rows of a message as the event table has them."""
    if not header["rows"]:
        assert not header["passages"] and not block
        return EMPTY
    rows, at = columns(header["layout"], header["rows"], block, 0)
    shared, at = columns(header["passage_layout"], header["passages"], block, at)
    assert at == len(block)
    passage = np.repeat(np.arange(header["passages"]), shared.pop("count"))
    assert len(passage) == header["rows"]
    table = rows | {name: column[passage] for name, column in shared.items()}
    for name in ("lane", "collective", "algorithm", "group", "name", "phase"):
        table[name] = [texts[number] for number in table[name]]
    table["kind"] = [header["kinds"][code] for code in table["kind"]]
    for name in ("start", "end"):
        table[f"{name}_ns"] = table.pop(name).astype(np.int64) + header["origin"]
    frame = pl.DataFrame(table).select(SCHEMA.names())
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


class Client:
    """``send`` is what it joins with. It checks each message as a real page would."""

    def __init__(self) -> None:
        self.headers: list[dict[str, Any]] = []
        self.answers: dict[Any, dict[str, Any]] = {}
        self.tables: list[pl.DataFrame] = []
        self.texts: list[str] = []
        self.wrong: list[str] = []
        self.heard = threading.Condition()
        self._seq = 0
        self._busy = threading.Lock()
        self._numbers = itertools.count(1)

    def send(self, message: Message) -> None:
        if not self._busy.acquire(blocking=False):
            self.wrong.append("two threads send at once")
            return
        try:
            self._take(message.header, message.payload)
        except Exception as error:  # the feed would only think that the page has gone
            self.wrong.append(repr(error))
        finally:
            self._busy.release()
        with self.heard:
            self.heard.notify_all()

    def _take(self, header: dict[str, Any], block: bytes) -> None:
        if header["type"] == "said":
            self.answers[header["id"]] = header
            return
        if header.get("reset"):
            self.tables, self.texts, self._seq = [], [], 0
        self._seq += 1
        assert header["seq"] == self._seq, f"seq {header['seq']} after {self._seq - 1}"
        first, texts = header["strings"]["first"], header["strings"]["texts"]
        assert first <= len(self.texts), "names are missing"
        self.texts[first:] = texts + self.texts[first + len(texts) :]
        self.tables.append(unpack(header, block, self.texts))
        self.headers.append(header)

    @property
    def table(self) -> pl.DataFrame:
        return pl.concat([EMPTY, *self.tables])

    @property
    def last(self) -> dict[str, Any]:
        return self.headers[-1]

    def ask(self, page: Any, verb: str, **args: Any) -> dict[str, Any]:
        """Have something done, and wait for what is said of it."""
        number = next(self._numbers)
        page.hear({"type": "do", "id": number, "verb": verb, "args": args})
        self.until(lambda: number in self.answers, what=f"an answer to {verb}")
        return self.answers[number]

    def until(self, condition: Callable[[], Any], seconds: float = 20, what: str = "") -> None:
        """Wait for something to be heard; fail after so many seconds."""
        deadline = time.monotonic() + max(seconds, PATIENCE)
        with self.heard:
            while not condition():
                assert not self.wrong, self.wrong
                left = deadline - time.monotonic()
                assert left > 0, f"not within {seconds} s: {what or 'what was awaited'}"
                self.heard.wait(min(left, 0.1))
        assert not self.wrong, self.wrong
