"""Resources of ``workbench serve``: after many short runs, many watchers, hostile readers.

``python -m tools.soak.serving runs [--runs 500]``: one after the other, each with its page.
``python -m tools.soak.serving presets [--runs 85]``: each preset in its turn, cut short.
``python -m tools.soak.serving watchers [--pages 50]``: of one run; the time of an answer.
``python -m tools.soak.serving readers [--seconds 60]``: slow requests, 100 MB, deaf pages.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.interface.app.served import IN_USE, Line, Reader, Served, end, launch
from tests.interface.app.visitor import Visitor
from tools.soak.trend import trend
from workbench.presets import catalogue

SHORT = {"ranks": 2, "iterations": 20, "batch_size": 16}
PRESET_SECONDS = 5.0  # then a preset's run is stopped
MOST_GROWN = 20.0  # MB that the server may surely have grown by, over the second half of the runs
LONG = {"ranks": 4, "iterations": 100_000}
MASK = b"\x00\x00\x00\x00"


def say(words: str) -> None:
    print(words, flush=True)


async def start(page: Visitor, fields: dict[str, Any]) -> str:
    """Start a run from the start page's form; its address."""
    form = page.parts["FormPart"]
    values = {**form["values"], **fields}
    message = {"type": "start", "values": values, "filled": form["filled"]}
    return await begin(page, message)


async def begin(page: Visitor, message: dict[str, Any]) -> str:
    """Have the start page's form start a run; its address."""
    await page.tell("FormPart", message)

    def answered() -> Any:
        now = page.parts["FormPart"]
        assert not now["refused"] and not now["wrong"], (now["refused"], now["wrong"])
        return now.get("address")

    await page.until(answered, "the run's address")
    return str(page.parts["FormPart"]["address"]).lstrip(".")


# ---- many runs


class Held(NamedTuple):
    """A server's memory in MB, its open descriptors, and the entries of its temporary folder."""

    megabytes: float
    descriptors: int
    files: int

    @classmethod
    def of(cls, served: Served) -> Held:
        files = len(os.listdir(tempfile.gettempdir()))
        return cls(served.megabytes, len(os.listdir(f"/proc/{served.process.pid}/fd")), files)


async def many_runs(served: Served, runs: int, presets: Sequence[str] = ()) -> list[Held]:
    """Return what a server holds after each of these runs. One visitor starts them all: of these
    presets one after the other, where there are any.
    """
    reader, held = Reader(), list[Held]()
    for number in range(runs):
        first = await Visitor(served, "/", reader).open()
        if presets:
            name = presets[number % len(presets)]
            address = await begin(first, {"type": "run", "name": name})
        else:
            address = await start(first, SHORT)
        first.close()
        page = await Visitor(served, address, reader).open()
        if presets:
            await asyncio.sleep(PRESET_SECONDS)
            await page.tell("Stage", {"type": "do", "id": 1, "verb": "stop", "args": {}})
        await page.until(lambda page=page: page.parts["BarPart"].get("again"), "the run's end")
        page.close()
        held.append(Held.of(served))
        if number % 10 == 9 or number + 1 == runs:
            one = held[-1]
            say(
                f"after {number + 1:4} runs: {one.megabytes:7.1f} MB, {one.descriptors} "
                f"descriptors, {one.files} temporary files"
            )
    return held


def runs(served: Served, options: argparse.Namespace, presets: Sequence[str] = ()) -> bool:
    held = asyncio.run(many_runs(served, options.runs, presets))
    good = True
    for name, most in {"megabytes": MOST_GROWN, "descriptors": 0.5, "files": 0.5}.items():
        growth = trend([getattr(one, name) for one in held])
        say(f"{name} held by the server: {growth}; surely {growth.least:.1f}")
        good &= growth.least <= most
    return good


def presets(served: Served, options: argparse.Namespace) -> bool:
    return runs(served, options, [*catalogue.presets()])


# ---- many watchers


async def many_watchers(served: Served, pages: int) -> dict[str, float]:
    """MB and seconds of an answer, before and while so many pages watch one run."""
    owner = await Visitor(served).open()
    page = await Visitor(served, await start(owner, LONG), owner.reader).open()
    await page.until(lambda: page.parts["BarPart"].get("watch"), "the address of viewers")
    watch = page.parts["BarPart"]["watch"].lstrip(".")
    alone, held = await answer_seconds(served), served.megabytes
    watchers = []
    for _ in range(pages):
        watchers.append(await Visitor(served, watch).open())
    await asyncio.sleep(10)
    before = [(len(one.batches), one.bytes) for one in watchers]
    began = time.monotonic()
    crowded = await answer_seconds(served)
    passed = time.monotonic() - began
    pairs = [*zip(watchers, before, strict=True)]
    heard = [(len(one.batches) - was) / passed for one, (was, _) in pairs]
    sizes = [(one.bytes - was) / passed / 1e3 for one, (_, was) in pairs]
    figures = {
        "MB before": held,
        "MB with them": served.megabytes,
        "s to answer before": alone,
        "s to answer with them": crowded,
        "messages per second to a page, least": min(heard),
        "and in the middle": statistics.median(heard),
        "kB per second, in the middle": statistics.median(sizes),
    }
    for one in (*watchers, page, owner):
        one.close()
    return figures


async def answer_seconds(served: Served, times: int = 15) -> float:
    """The median time of a new visitor's start page."""
    seconds = []
    for _ in range(times):
        began = time.monotonic()
        status, _, _ = await asyncio.to_thread(Reader(), served.url + "/partition")
        assert status == 200
        seconds.append(time.monotonic() - began)
        await asyncio.sleep(0.2)
    return statistics.median(seconds)


def watchers(served: Served, options: argparse.Namespace) -> bool:
    for name, value in asyncio.run(many_watchers(served, options.pages)).items():
        say(f"{name:36} {value:8.2f}")
    return True


# ---- hostile readers


def frame(data: bytes, opcode: int = 1, length: int | None = None) -> bytes:
    """A frame of a websocket, which may say another length than it has."""
    size = len(data) if length is None else length
    return bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big") + MASK + data


def long_message(served: Served, megabytes: int = 100) -> bool:
    """Send one message of so many MB; is the line closed before they are all there?"""
    return _sends(served, lambda: frame(b"", length=megabytes << 20), megabytes)


def message_of_many_parts(served: Served, megabytes: int = 100) -> bool:
    """The same, as parts that are each short enough."""
    header = b'{"msgid":"1","msgtype":"PATCH-DOC","num_buffers":1000000}'
    content = b'{"events":[]}'
    parts = frame(header) + frame(b"{}") + frame(content)
    buffers = (frame(b'{"id":"x"}') + frame(bytes(1 << 19), opcode=2)) * 2
    return _sends(served, lambda: parts, megabytes, buffers)


def _sends(served: Served, first: Callable[[], bytes], megabytes: int, piece: bytes = b"") -> bool:
    reader = Reader()
    line = Line(served, reader.token(served.url + "/"), reader.cookies)
    piece = piece or bytes(1 << 20)
    try:
        time.sleep(0.5)  # its session is there
        line.socket.sendall(first())
        for _ in range(megabytes):
            line.socket.sendall(piece)
    except OSError:
        return True
    finally:
        line.close()
    return False


def slow_requests(served: Served, lines: int = 200, seconds: float = 60.0) -> int:
    """Open requests that say one letter a second; how many are still open after that time."""
    opened = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(lines)]
    deadline = time.monotonic() + seconds
    while opened and time.monotonic() < deadline:
        for one in [*opened]:
            one.setblocking(False)
            try:
                one.sendall(b"G")
                with contextlib.suppress(BlockingIOError):
                    if one.recv(100) == b"":
                        raise ConnectionError
            except OSError:
                opened.remove(one)
                one.close()
        time.sleep(1)
    left = len(opened)
    for one in opened:
        one.close()
    return left


async def deaf_pages(served: Served, pages: int, seconds: float) -> tuple[float, float, int]:
    """Pages that say hello to a run and never read: MB before, at most, and how many stay."""
    owner = await Visitor(served).open()
    address = await start(owner, LONG)
    page = await Visitor(served, address, owner.reader).open()
    await page.until(lambda: page.parts["BarPart"].get("watch"), "the address of viewers")
    watch = page.parts["BarPart"]["watch"].lstrip(".")
    deaf = []
    for _ in range(pages):
        one = await Visitor(served, watch).open()
        await one.until(lambda one=one: one.events > 3, "that it is told of the run")
        one.stop_reading()
        deaf.append(one)
    held = most = served.megabytes
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        await asyncio.sleep(0.5)
        most = max(most, served.megabytes)
    left = sum(not one.is_cut_off() for one in deaf)
    for one in (*deaf, page, owner):
        one.close()
    return held, most, left


def readers(served: Served, options: argparse.Namespace) -> bool:
    gc.collect()
    good = True
    for name, send in (
        ("a message of 100 MB", long_message),
        ("100 MB in short parts", message_of_many_parts),
    ):
        before = served.megabytes
        closed = send(served)
        grown = served.megabytes - before
        say(f"{name}: {'cut off' if closed else 'TAKEN'}; {before:.0f} MB and {grown:+.0f}")
        good = good and closed and grown < 20
    before = served.megabytes
    left = slow_requests(served, seconds=options.seconds)
    say(
        f"200 slow requests: {left} open after {options.seconds:.0f} s; "
        f"{before:.0f} MB and {served.megabytes - before:+.0f}"
    )
    held, most, stay = asyncio.run(deaf_pages(served, 5, options.seconds))
    say(
        f"5 pages that never read: {stay} open after {options.seconds:.0f} s; "
        f"{held:.0f} MB and {most - held:+.0f} at most"
    )
    return good and not left


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak.serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["runs", "presets", "watchers", "readers"])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workbench-serve-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # what the server's runs write is counted
        served = launch(Path(folder), "serve", "--max-minutes=600", first=IN_USE)
        try:
            served.until_it_answers()
            modes = {"runs": runs, "presets": presets, "watchers": watchers, "readers": readers}
            good = modes[options.what](served, options)
        finally:
            end(served)
            log = served.log.read_text()
            traces = log.count("Traceback")
            if traces:
                say(log[log.index("Traceback") - 500 :][:4000])
    say(f"{traces} tracebacks in the server's log" if traces else "well" if good else "NOT WELL")
    return int(not good or traces > 0)


if __name__ == "__main__":
    sys.exit(main())
