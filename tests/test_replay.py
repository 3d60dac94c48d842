"""The saved page: one file, bounded, as many calls as fit; that it moves, tests/browser shows."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.synthetic import training
from workbench._assets import stage_module
from workbench.replay import MAX_CALLS, MAX_ROWS, page, replay, to_html
from workbench.store import Store


def test_a_small_run_is_whole_and_a_large_one_is_sampled_evenly() -> None:
    small = replay(Store.from_frame(training(5))).header
    assert [call["op"] for call in small["calls"]] == [0, 1, 2, 3, 4]
    assert small["counters"]["calls"] == 5 and small["state"] == "replay"
    many = 3 * MAX_CALLS
    large = replay(Store.from_frame(training(many))).header
    ops = [call["op"] for call in large["calls"]]
    assert len(ops) == MAX_CALLS and (ops[0], ops[-1]) == (0, many - 1)
    assert large["counters"]["calls"] == many and large["rows"] <= MAX_ROWS
    gaps = {b - a for a, b in pairwise(ops)}
    assert gaps <= {2, 3, 4}


def test_the_page_is_one_bounded_file(tmp_path: Path) -> None:
    store = Store.from_frame(training(40))
    to_html(store, tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text()
    assert len(text) < 400_000 + 10 * len(store)
    assert not re.search(r"(src|href)=|https?://", text)


def test_what_comes_from_a_run_cannot_end_the_script() -> None:
    store = Store.from_frame(training(1), {"error": "</script><script>alert(1)</script>"})
    text = page(replay(store))
    assert text.count("<script") == 1 and text.count("</script") == 1


def test_an_empty_store_and_one_with_an_error_have_their_words() -> None:
    assert replay(Store()).header["calls"] == []
    failed = replay(Store.from_frame(training(2), {"error": "rank 2 was killed.\nmore"})).header
    assert (failed["state"], failed["words"]) == ("failed", "rank 2 was killed.")


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
