"""A finished run as one HTML file that still moves: no server, no network, from file://.

The page holds the stage's own module and the rows of calls, gzipped. A large run is sampled, evenly
over its length, and the page's badge says so.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import uuid
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import polars as pl

from workbench._assets import stage_module, theme
from workbench.store import Store
from workbench.views import Message
from workbench.views.facts import NO_COUNTERS, add_faults, count, facts, in_a_line, largest
from workbench.views.ring import calls, select
from workbench.views.stream import describe, message

MAX_ROWS = 60_000  # rows in a page: about half a megabyte
MAX_CALLS = 64  # what a page keeps (assets/model.js)

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'">
<title>$title</title>
<style>:root { color-scheme: light dark; }
body { margin: 0; background: light-dark(#ffffff, #14171b); }
body > main { max-width: 992px; margin: 0 auto; }
$style</style></head>
<body><main id="stage"></main>
<script type="module">
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const packed = new Blob([bytes("$payload")]).stream().pipeThrough(new DecompressionStream("gzip"));
const buffer = await new Response(packed).arrayBuffer();
const { default: stage } = await import("data:text/javascript;base64,$module");
const model = {
  on: (event, take) => event === "msg:custom" && queueMicrotask(() => take($header, [buffer])),
  off() {},
};
stage.render({ model, el: document.getElementById("stage") });
</script></body></html>
""")


def to_html(store: Store, path: str | os.PathLike[str]) -> None:
    """Write the run that ``store`` holds, live or loaded, as a page to ``path``."""
    Path(path).write_text(page(replay(store)), encoding="utf-8")


def page(told: Message) -> str:
    """The page that shows this message."""
    run = told.header["run"]
    return _PAGE.substitute(
        title=html.escape(f"{run['title'] or 'Distributed training'}, {run['ranks']} ranks"),
        style=theme(),
        payload=base64.b64encode(gzip.compress(told.payload, 6, mtime=0)).decode(),
        module=base64.b64encode(stage_module().encode()).decode(),
        header=json.dumps(told.header).replace("<", "\\u003c"),  # no text may end the script
    )


def replay(store: Store) -> Message:
    """The run as one message: counters over all events, as many of its calls as a page holds."""
    events, known = store.events, facts(store.metadata)
    counters = {**NO_COUNTERS, "events": events.height, "dropped": store.dropped}
    sampled: list[tuple[dict[str, Any], pl.DataFrame]] = []
    if events.height:
        count(counters, events)
        add_faults(known, events)
        origin = -largest(-events["start_ns"])
        complete = calls(events).filter("complete")
        chosen = spread(complete)
        rows = select(events, chosen, origin)
        parts = rows.partition_by("call", maintain_order=True)
        sampled = [
            (describe(call, part, origin), part)
            for call, part in zip(chosen.iter_rows(named=True), parts, strict=True)
        ]
        if complete.height:
            counters["calls"] = largest(complete["op"]) + 1
        known["ranks"] = known["ranks"] or largest(events["rank"]) + 1
    error = store.metadata.get("error", "")
    state, words = ("failed", in_a_line(error)) if error else ("replay", "")
    head = {"id": uuid.uuid4().hex, **known}
    return message(head, sampled, seq=1, now=None, state=state, words=words, counters=counters)


def spread(complete: pl.DataFrame) -> pl.DataFrame:
    """As many calls as a page holds, evenly over the run, its first and its last among them."""
    if not complete.height:
        return complete
    fit = MAX_ROWS * complete.height // int(complete["rows"].sum())
    most = max(1, min(MAX_CALLS, fit, complete.height))
    chosen = np.linspace(0, complete.height - 1, most).round().astype(int)
    return complete.filter(pl.int_range(pl.len()).is_in(chosen.tolist()))
