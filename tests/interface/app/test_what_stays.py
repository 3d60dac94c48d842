"""What is over leaves nothing in the server: a run that is forgotten, a line that is closed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from bokeh.util.token import generate_jwt_token
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import websocket_connect

from tests.live import PATIENCE, complete, lenet, until
from tests.page import Client
from workbench.interface.app.charts import lines
from workbench.interface.app.lines import Bounded
from workbench.interface.app.runs import Runs
from workbench.views.pages.feed import feed


def test_a_run_that_is_forgotten() -> None:
    runs = Runs()
    hosted = runs.start(lenet(), "me")
    hosted.run.wait(120)
    shown = [Client(), Client()]
    pages = [feed(hosted.run).join(client.send) for client in shown]
    for page, client in zip(pages, shown, strict=True):
        page.hear({"type": "hello"})
        client.until(lambda client=client: client.headers, what="its rows")
        page.leave()
    assert lines(hosted.run).figure("loss", "light") is not None
    kept = [weakref.ref(one) for one in (hosted.run, hosted.run.store, feed(hosted.run), hosted)]
    assert runs.history("me").remove(hosted.id)
    del hosted, pages, page
    runs.tick()
    until(lambda: gc.collect() >= 0 and not any(one() for one in kept), 10, "all of it has gone")


def test_a_line_that_is_closed() -> None:
    complete(_open_and_close())


_opened: weakref.WeakSet[Bounded] = weakref.WeakSet()


class _Echo(Bounded):
    def open(self, *args: str, **named: str) -> Any:
        _opened.add(self)
        return super().open(*args, **named)

    def select_subprotocol(self, subprotocols: list[str]) -> str:
        return subprotocols[0]

    async def on_message(self, message: str | bytes) -> None:
        await self.write_message(message)


async def _open_and_close() -> None:
    listener, port = bind_unused_port()
    server = HTTPServer(Application([("/ws", _Echo)]))
    server.add_socket(listener)
    protocols = ["bokeh", generate_jwt_token("a session")]
    line = await websocket_connect(f"ws://127.0.0.1:{port}/ws", subprotocols=protocols)
    await line.write_message("hello")
    assert await line.read_message() == "hello" and len(_opened) == 1
    line.close()
    async with asyncio.timeout(PATIENCE):
        while _opened:
            gc.collect()
            await asyncio.sleep(0.02)
    server.stop()
