"""The saved page: one bounded file that holds every event, to the bit; that it moves, tests/browser
shows.
"""

from __future__ import annotations

import base64
import json
import math
import re
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.live import ROOT, lenet
from tests.synthetic import MICRO, loss_row, ring_call, table, training
from workbench.front_end.assets import stage_module
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.views.packing import Message
from workbench.views.pages import past
from workbench.views.pages.compact import part
from workbench.views.pages.feed import Feed
from workbench.views.replay import page, to_html

UNPACK = """
import { readFileSync, writeFileSync } from "node:fs";
import { partsOf, unpack } from "%s/assets/widgets/unpack.js";
const parts = [...partsOf(new Uint8Array(readFileSync(process.argv[2])))];
const blocks = parts.map(({ header, columns }) => new Uint8Array(unpack(header, columns)));
writeFileSync(process.argv[3], Buffer.concat(blocks));
console.log(JSON.stringify(parts.map(({ header }) => header)));
"""


def messages_of(store: Store) -> list[Message]:
    """The messages of a run that is over, as a live page hears them."""
    over, messages = Loaded(store), list[Message]()
    Feed(over).tell_all(over, messages.append)
    return messages


def unpacked(file: bytes, folder: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The headers and the blocks that the page's own JavaScript finds in a file."""
    (folder / "unpack.mjs").write_text(UNPACK % ROOT)
    (folder / "file").write_bytes(file)
    words = ["node", "unpack.mjs", "file", "blocks"]
    try:
        ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.fail("this test needs node 20 or newer on PATH")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout, parse_int=_whole), (folder / "blocks").read_bytes()


def _whole(digits: str) -> float:
    """JavaScript writes 2.0**60 as 1152921504606847000: beyond 2^53 it means the nearest float."""
    return int(digits) if abs(int(digits)) <= 2**53 else float(digits)


def held(text: str) -> bytes:
    """The run's file inside a page."""
    match = re.search(r'<script type="text/plain" id="run">([\w+/=]*)</script>', text)
    assert match, "the page holds no run"
    return zlib.decompress(base64.b64decode(match[1]))


def same(store: Store, folder: Path) -> list[dict[str, Any]]:
    """Unpacked, the store's messages are what they were; their headers."""
    messages = messages_of(store)
    headers, blocks = unpacked(b"".join(map(part, messages)), folder)
    assert blocks == b"".join(message.payload for message in messages)
    for header, message in zip(headers, messages, strict=True):
        sizes = header.pop("compact")
        assert set(sizes) == {"lanes", "shapes", "contexts"}
        assert header == json.loads(json.dumps(message.header))
    return headers


# ---- every event, to the bit


def test_a_ring_s_rows_are_there_to_the_bit(tmp_path: Path) -> None:
    headers = same(Store.from_frame(training(20)), tmp_path)
    assert sum(header["rows"] for header in headers) == training(20).height


def test_a_real_run_s_rows_are_there_to_the_bit_live_or_loaded(tmp_path: Path) -> None:
    run = wb.run(lenet(ranks=3, iterations=10))
    assert run.wait(60).ok
    same(run.store, tmp_path)
    run.store.save(tmp_path / "run.parquet")
    headers = same(Store.load(tmp_path / "run.parquet"), tmp_path)
    assert headers[0]["state"] == "replay" and headers[0]["run"]["ranks"] == 3
    assert headers[0]["counters"]["events"] == len(run.store) == sum(h["rows"] for h in headers)
    assert headers[0]["counters"]["record_share"] == pytest.approx(run.overhead().share)


def test_more_messages_than_one_and_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "SAVED_ROWS", 200)
    headers = same(Store.from_frame(training(20)), tmp_path)
    assert len(headers) > 4 and sorted({h["rows"] for h in headers})[-1] <= 200
    assert next(h["rows"] for h in same(Store(), tmp_path)) == 0


_SMALL, _LARGE = st.integers(-1, 5), st.integers(-1, 2**31 - 1)
_ROW = st.fixed_dictionaries(
    {
        "rank": st.integers(-1, 3),
        "lane": st.sampled_from(["comm", "compute", "dri ver"]),
        "seq": _LARGE,
        "generation": _SMALL,
        "kind": st.sampled_from(["send", "recv", "metric"]),
        "start_ns": st.integers(0, 2**52),
        "end_ns": st.integers(0, 2**52),
        "collective": st.sampled_from(["", "all_reduce"]),
        "algorithm": st.just("ring"),
        "phase": st.sampled_from(["", "λ"]),
        "group": st.sampled_from(["default", "metrics"]),
        "op": _LARGE,
        "peer": st.integers(-1, 3),
        "step": _SMALL,
        "chunk": _LARGE,
        "slot": _SMALL,
        "nbytes": st.integers(-1, 2**52),
        "iteration": _LARGE,
        "microbatch": _SMALL,
        "stage": _SMALL,
        "version": _LARGE,
        "name": st.sampled_from(["", "loss", "</script>"]),
        "value": st.floats(),
    }
)


@pytest.mark.full
@given(rows=st.lists(_ROW, min_size=1, max_size=40))
def test_any_rows_are_there_to_the_bit(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Gaps in seq, times that go back, numbers of any size, NaN, infinity, any order of lanes."""
    same(Store.from_frame(pl.DataFrame(rows)), tmp_path_factory.mktemp("any"))


# ---- one bounded file


def noisy(rows: int, ranks: int) -> pl.DataFrame:
    """A ring's rows again and again, each moment moved by some microseconds, as clocks do."""
    once = training(8, ranks=ranks)
    whole = pl.concat([once] * -(-rows // once.height)).head(rows).with_row_index("i")
    chance = np.random.default_rng(0)
    turn = pl.col("i") // once.height
    noise = [pl.Series(chance.gamma(2, 3 * MICRO, rows).astype(np.int64)) for _ in range(2)]
    lane = pl.int_range(pl.len()).over("rank", "lane")
    return whole.with_columns(
        start_ns=pl.col("start_ns") + turn * 10**8 + noise[0],
        end_ns=pl.col("end_ns") + turn * 10**8 + noise[0] + noise[1],
        op=pl.when(pl.col("op") < 0).then(-1).otherwise(pl.col("op") + turn * 8),
        iteration=pl.col("iteration") + turn * 8,
        seq=lane,
    ).drop("i")


@pytest.mark.parametrize(("rows", "ranks"), [(100, 4), (100_000, 4), (100_000, 16)])
def test_the_page_is_one_bounded_file(tmp_path: Path, rows: int, ranks: int) -> None:
    store = Store.from_frame(noisy(rows, ranks))
    to_html(store, tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text()
    assert len(text.encode()) <= 480_000 + 10 * len(store)
    assert not re.search(r"(src|href)=|https?://", text)


def test_a_run_beyond_a_page_s_capacity_keeps_its_newest_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "HISTORY_ROWS", 500)
    events = training(40)
    headers, blocks = unpacked(held(page(Store.from_frame(events))), tmp_path)
    assert headers[0]["counters"]["older"] + sum(h["rows"] for h in headers) == events.height
    ends = np.frombuffer(blocks, "<f8", headers[0]["rows"], 8 * headers[0]["rows"])
    kept = sorted(ends + headers[0]["origin"])
    assert 490 <= len(kept) <= 500  # all that end at one moment stay, or go
    assert kept == sorted(events["end_ns"])[-len(kept) :]


# ---- its words


def test_what_comes_from_a_run_cannot_end_the_script() -> None:
    bad = "</script><script>alert(1)</script>"
    rows = [*ring_call(0, 10**12), loss_row(0, 10**12, math.nan) | {"name": bad}]
    text = page(Store.from_frame(table(rows), {"error": bad, "experiment": "strategy: 'a<b>'"}))
    assert text.count("<script") == text.count("</script") == 3
    assert "<title>A&lt;b&gt;, 4 ranks</title>" in text


def test_a_run_s_state_has_its_words(tmp_path: Path) -> None:
    def state(store: Store) -> tuple[str, str]:
        header = unpacked(held(page(store)), tmp_path)[0][0]
        assert header["run"]["readonly"] and header["reset"] and header["seq"] == 1
        return header["state"], header["words"]

    assert state(Store.from_frame(training(2))) == ("replay", "")
    failed = Store.from_frame(training(2), {"error": "rank 2 was killed.\nmore"})
    assert state(failed) == ("failed", "rank 2 was killed.")
    assert state(Store())[0] == "empty"


def test_the_title_says_what_ran() -> None:
    spec = "strategy: data_parallel\nranks: 4\n"
    assert "<title>Data parallel, 4 ranks</title>" in page(
        Store.from_frame(training(1), {"experiment": spec})
    )


def test_the_module_that_is_served_stands_alone(tmp_path: Path) -> None:
    """Every file of the stage is in it, it imports nothing, and it is a module with render."""
    text = stage_module()
    assert not re.search(r"^\s*import\b", text, re.MULTILINE)
    (tmp_path / "stage.mjs").write_text(text)
    script = "import('./stage.mjs').then((m) => console.log(typeof m.default.render))"
    try:
        ran = subprocess.run(["node", "-e", script], cwd=tmp_path, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.fail("this test needs node 20 or newer on PATH")
    assert ran.stdout.strip() == "function", ran.stderr
