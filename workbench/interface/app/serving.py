"""``workbench serve``: the server's options, its life and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import panel as pn
from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError

from workbench.common import heap
from workbench.common.errors import WorkbenchError
from workbench.interface.app.compare import compare_page
from workbench.interface.app.gate import Listening, open_server
from workbench.interface.app.jobs import Jobs, job_page
from workbench.interface.app.limits import Limits
from workbench.interface.app.login import Door
from workbench.interface.app.page import Site
from workbench.interface.app.partition import partition_page
from workbench.interface.app.plotly_script import ROUTE, PlotlyScript
from workbench.interface.app.run import run_page, watch_page
from workbench.interface.app.runs import Runs
from workbench.interface.app.start import start_page
from workbench.interface.app.thumbnails import ROUTE as PICTURES
from workbench.interface.app.thumbnails import Thumbnails
from workbench.launchers.processes.pool import warm_pool
from workbench.rank import allocation

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WARM_RANKS = 4  # processes that are ready for the first run
PIECE = 1 << 20  # bytes of a file that are sent at a time


@dataclass(frozen=True)
class Options:
    """The server's options: its address, its login, and the limits of a run."""

    port: int = 5006
    host: str = "127.0.0.1"
    origins: tuple[str, ...] = ()  # further HOST:PORT by which browsers know this server
    keys: Mapping[str, str] | None = None  # password by user
    proxied: bool = False  # a proxy in front says whose requests it passes on
    limits: Limits = field(default_factory=Limits)
    watch: tuple[str, ...] = ()  # folders of jobs that visitors may watch

    @property
    def open_to_others(self) -> bool:
        return self.host not in LOOPBACK


def origins(options: Options) -> list[str]:
    """Return the HOST:PORT of pages whose websockets are accepted; those of every other page are
    refused.
    """
    names = {options.host, "localhost", "127.0.0.1"}
    if options.open_to_others:
        names |= {socket.gethostname(), socket.getfqdn(), *_own_addresses()}
    names -= {"0.0.0.0", "::"}
    return sorted({f"{in_address(name)}:{options.port}" for name in names} | {*options.origins})


def listening(options: Options) -> Listening:
    """Return where the server listens, as its gate needs it."""
    return Listening(options.port, options.host, tuple(origins(options)), options.proxied)


def in_address(host: str) -> str:
    """Return a host as it stands in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def _own_addresses() -> Iterable[str]:
    """Return this machine's addresses toward others; nothing is sent to find them."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # an address without an owner
        yield probe.getsockname()[0]


def serve(options: Options) -> None:
    """Serve until SIGINT or SIGTERM; then every rank is ended. Raises WorkbenchError."""
    heap.bound()
    if options.watch and options.open_to_others:
        raise WorkbenchError(
            f"--watch shows jobs to this machine only, and the server would listen on "
            f"{options.host}: leave --host out, or --watch"
        )
    options.limits.check_names()
    jobs = Jobs(options.watch)
    runs = Runs(options.limits)
    door = Door(options.keys, options.port)
    form_word = door.form_word if options.keys is not None else None
    site = Site(runs, form_word=form_word, warm=warm, jobs=jobs)
    pn.extension()
    try:
        server = open_server(
            {
                "/": lambda: start_page(site),  # Panel takes plain functions only
                "/compare": lambda: compare_page(site),
                "/run": lambda: run_page(site),
                "/watch": lambda: watch_page(site),
                "/partition": lambda: partition_page(site),
                "/job": lambda: job_page(site),
            },
            listening(options),
            door,
            "Distributed training workbench",
            [
                ("/replay", Replay, {"runs": runs}),
                (ROUTE, PlotlyScript, {}),
                (PICTURES, Thumbnails, {}),
            ],
        )
    except OSError as error:
        raise WorkbenchError(cannot_listen(options, error)) from None
    loop = IOLoop.current()

    def stop(*_: Any) -> None:
        loop.asyncio_loop.call_soon_threadsafe(loop.stop)  # type: ignore[attr-defined]

    loop.asyncio_loop.set_exception_handler(_ignore_closed)  # type: ignore[attr-defined]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    runs.watch_over()
    os.environ[allocation.NAME] = str(options.limits.memory)
    server.start()
    print(greeting(options), flush=True)
    try:
        loop.start()
    finally:
        runs.close()
        jobs.close()
        with contextlib.suppress(Exception):  # whatever it complains about, it ends with us
            server.stop(wait=False)
        site.close()
        os.environ.pop(allocation.NAME, None)  # a run that this process starts later has no bound
        gc.freeze()  # or the interpreter looks through all objects once more: a second, idle cores


def _ignore_closed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Keep it out of the terminal that a page was closed while something was sent to it."""
    if not isinstance(context.get("exception"), WebSocketClosedError | StreamClosedError):
        loop.default_exception_handler(context)


@cache
def warm() -> None:
    """Prepare the next run's processes, and import here what starting and drawing it takes.

    That takes one second and more, some of which Panel would spend on the thread that serves every
    page. The first page that is open in a browser begins it, the others find it done: a server
    that is not in use holds no torch and no ranks.
    """
    warm_pool().keep(WARM_RANKS)
    import torch.distributed  # noqa: F401
    from plotly.graph_objs import FigureWidget  # noqa: F401


def greeting(options: Options) -> str:
    """Return the lines that the terminal shows at the start."""
    lines = [
        f"The web app is at http://{in_address(options.host)}:{options.port}/  Ctrl-C ends it.",
        options.limits.words,
    ]
    if options.open_to_others and options.keys is None:
        lines.append(
            "WARNING: anyone who reaches this address can start processes on this machine. Give "
            "--basic-auth FILE with lines USER:PASSWORD, or listen on 127.0.0.1 only."
        )
    elif options.open_to_others:
        lines.append(
            "Passwords and pages travel unencrypted: put a proxy with TLS in front where the "
            "network is not yours."
        )
    return "\n".join(lines)


def cannot_listen(options: Options, error: OSError) -> str:
    where = f"{options.host}:{options.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is taken by another program: name another port, --port {options.port + 1}"
    return f"the web app cannot listen on {where}: {error.strerror or error}"


class Replay(RequestHandler):
    """A run as one HTML file, to be kept."""

    def initialize(self, runs: Runs) -> None:
        self.runs = runs

    async def get(self) -> None:
        hosted = self.runs.find(self.get_query_argument("id", ""))
        if hosted is None or (run := hosted.run) is None:
            raise HTTPError(404, reason="There is no such run here, or its events are gone")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header(
            "Content-Disposition", f'attachment; filename="run_{hosted.past.number}.html"'
        )
        self.set_header("Cache-Control", "no-store")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.html"
            await asyncio.to_thread(run.to_html, path)
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    self.write(piece)
                    await self.flush()
