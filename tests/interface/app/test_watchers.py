"""Pages that watch one run: each hears every message once, as Bokeh would have written it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit

import pytest
from bokeh.document import Document
from bokeh.document.events import MessageSentEvent
from bokeh.models import Div
from bokeh.protocol.messages.patch_doc import patch_doc
from panel.models.esm import ESMEvent

from tests.interface.app.served import Served, end, launch
from tests.interface.app.visitor import Visitor
from tests.live import LONG, complete
from tools.benchmarks.pages import served
from tools.soak import serving
from workbench.interface.app.lines import BLOCK
from workbench.interface.app.page import event_text


def test_a_message_s_text_is_what_bokeh_would_write() -> None:
    document, model = Document(), Div()
    document.add_root(model)
    document.models.flush_synced(lambda _: False)  # the page has it
    own = json.dumps({"seq": 3, "run": {"scene": 'a "b"'}})
    sent = ESMEvent(model=model, data={"own": own, "buffers": [b"rows"]})
    theirs = patch_doc.create([MessageSentEvent(document, "bokeh_event", sent)])
    (buffer,) = theirs._buffers
    text = theirs.content_json.replace(json.dumps(buffer.id), json.dumps(BLOCK))
    assert json.loads(event_text(model.ref["id"], own)) == json.loads(text)


@pytest.mark.full
def test_each_page_hears_every_message_once(tmp_path: Path) -> None:
    app = launch(tmp_path, "serve")

    async def watch() -> None:
        owner = await Visitor(app).open()
        fields = {"ranks": 2, "iterations": LONG, "pad_compute": "20 ms"}
        address = await serving.start(owner, fields)
        page = await Visitor(app, address, owner.reader).open()
        await page.until(lambda: page.parts["BarPart"].get("watch"), "the address of viewers")
        path = page.parts["BarPart"]["watch"].lstrip(".")
        pages = [page, *[await Visitor(app, path).open() for _ in range(3)]]
        for one in pages:
            await one.until(lambda one=one: len(one.batches) > 12, "messages")
            assert one.batches == [*range(1, len(one.batches) + 1)]
        for one in (*pages, owner):
            one.close()

    try:
        app.until_it_answers()
        complete(watch())
    finally:
        end(app)
    assert "Traceback" not in app.log.read_text()


def test_a_page_of_another_server_hears_them_too() -> None:
    """As where a user's own Panel app shows a run."""

    async def watch(address: str) -> None:
        shown = cast(Served, SimpleNamespace(url=address, port=urlsplit(address).port))
        page = await Visitor(shown).open()
        await page.until(lambda: len(page.batches) > 4, "messages")
        assert page.batches == [*range(1, len(page.batches) + 1)]
        page.close()

    with served("tools.benchmarks.busy_server", "{port}") as address:
        complete(watch(address.rstrip("/")))
