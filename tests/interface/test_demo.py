"""``make demo`` on few iterations: what it says holds, and it notices what does not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from workbench.common.errors import WorkbenchError
from workbench.interface import demo
from workbench.theory import cost_model


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Console:
    """The demo with 5 iterations, run in an empty folder; returns the console it will speak to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "ITERATIONS", 5)
    monkeypatch.setattr(demo, "GLOO_ITERATIONS", 2)
    monkeypatch.setitem(demo.EXPERIMENT, "iterations", 5)
    return Console(file=io.StringIO(), width=300)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_place_where_no_page_can_be_is_refused_before_anything_starts(short: Console) -> None:
    with pytest.raises(WorkbenchError, match="it is a folder"):
        demo.main(short, Path.cwd())
    assert text(short) == "", "nothing was trained"


def test_the_demo_holds_and_saves_what_it_names(short: Console) -> None:
    assert demo.main(short), text(short)
    assert text(short).count("✓") == 6 and "✗" not in text(short)
    for word in (
        "sequential",
        "identical to the bit",
        "2(n−1) = 6",
        "lower bound",
        "dropped",
        "Gloo",
    ):
        assert word in text(short)
    for name in ("demo.parquet", "demo.html", "demo.json"):
        assert Path("runs", name).exists() and f"runs/{name}" in text(short)


@pytest.mark.full
def test_the_demo_fails_where_bytes_are_not_those_of_the_formula(
    short: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = cost_model.bytes_sent
    monkeypatch.setattr(
        cost_model, "bytes_sent", lambda name, n, size: [4 + each for each in ring(name, n, size)]
    )
    assert not demo.main(short)
    assert text(short).count("✗") == 1 and "Expected {0:" in text(short)
