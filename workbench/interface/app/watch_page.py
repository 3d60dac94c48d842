"""One run, to be looked at: what ``workbench watch`` serves. No form, and no hands on ranks."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import panel as pn
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.web import RequestHandler

from workbench.common.errors import WorkbenchError
from workbench.interface.app.gate import connected, open_server
from workbench.interface.app.login import Door
from workbench.interface.app.page import BarPart, Ground, Stage, frame
from workbench.interface.app.serving import Options, cannot_listen, listening
from workbench.runs.job_address import PATH, records_of


def serve_run(
    run: Any,
    port: int = 5006,
    host: str = "127.0.0.1",
    *,
    title: str,
    words: str,
    ready: str = "",
    folder: Path | None = None,
    listener: socket.socket | None = None,
    ended: Callable[[], bool] = lambda: False,
    grace_s: float = 0.0,
) -> None:
    """Serve ``run`` at / and /watch, read-only, until SIGINT or SIGTERM. The page stays when the
    run ends. ``title`` and ``words`` stand over the picture; ``ready`` is printed, followed by the
    address, once the server listens. ``folder``: what the job records into, for those who watch it
    by this page's address (job_address.py). ``listener``: a socket that does so already, of which
    nothing is printed. Once ``ended()`` the page stays for those who look, and ``grace_s`` seconds.
    Raises WorkbenchError if it cannot listen.
    """
    options = Options(port, host)
    at = replace(listening(options), listener=listener)
    pn.extension()

    def page() -> pn.Template:  # Panel takes plain functions only
        return run_page(run, title, words)

    extra = [] if folder is None else [(PATH, Records, {"folder": folder})]
    try:
        server = open_server({"/": page, "/watch": page}, at, Door(None, port), title, extra)
    except OSError as error:
        raise WorkbenchError(cannot_listen(options, error)) from None
    loop = IOLoop.current()

    def stop(*_: Any) -> None:
        loop.asyncio_loop.call_soon_threadsafe(loop.stop)  # type: ignore[attr-defined]

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.start()
    if listener is None:
        print(f"{ready} http://{host}:{port}/watch  Ctrl-C ends it.".strip(), flush=True)
    looked_at = time.monotonic()

    def look() -> None:
        nonlocal looked_at
        if connected(server) or not ended():
            looked_at = time.monotonic()
        elif time.monotonic() - looked_at >= grace_s:
            loop.stop()

    PeriodicCallback(look, 500).start()
    try:
        loop.start()
    finally:
        server.stop(wait=False)


class Records(RequestHandler):
    """Answers where the job's records are; the page shows that as well."""

    def initialize(self, folder: Path) -> None:
        self.folder = folder

    def get(self) -> None:
        self.finish(records_of(self.folder))


def run_page(run: Any, title: str, words: str) -> pn.Template:
    """Build one page of the job: no charts, since such a job records no losses."""
    bar, ground, stage = BarPart(), Ground(), Stage()
    bar.tell(
        title=title, words=words, notice="", serious=False, watch="", again="", ways=[], code=""
    )
    stage.watch(run, readonly=True)
    pn.state.on_session_destroyed(lambda _: stage.leave())
    return frame(title, {"bar": bar, "stage": stage, "ground": ground})
