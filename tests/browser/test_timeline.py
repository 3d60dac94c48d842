"""The timeline of a DDP run, from a real one: pointing at a bucket names its parameters, where
buckets were rebuilt is a mark with words, and a click keeps what was said.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import polars as pl
import pytest
from playwright.sync_api import Locator

import workbench as wb
from tests.browser.conftest import Watched, let_draw, opened_page, wait_for
from tests.browser.test_overview import CLASHES
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
RANKS, ITERATIONS, SETTLED = 3, 8, 5
TOP, ROW, LEFT = 32, 58, 66  # of the lanes, in pixels: timeline_layout.js
COMPUTING, TALKING = 10, 30  # of a rank's lanes, from its top on
MARKED = 18  # the lower edge of computing, where the mark lies
Open = Callable[..., Watched]


class Saved(NamedTuple):
    uri: str
    events: pl.DataFrame
    buckets: dict[str, Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A page of a run that is over, its rows, and its buckets as rank 0 told them."""
    run = wb.run(
        wb.Experiment(
            strategy="ddp",
            task="mlp_layers",
            task_options={"layers": 8, "width": 64},
            ranks=RANKS,
            iterations=ITERATIONS,
            pad_compute="60 ms",
            network=wb.Network(latency="1 ms", bandwidth="100 Mbit/s"),
            options={"bucket_cap_mb": 0.03},
        )
    )
    run.wait(timeout=90)
    path = tmp_path_factory.mktemp("timeline") / "run.html"
    run.to_html(path)
    return Saved(path.as_uri(), run.events, json.loads(run.store.metadata["buckets"]))


def at_iteration(stage: Locator, events: pl.DataFrame, iteration: int) -> None:
    """The playhead in the middle of an iteration, and so the window around it."""
    rows = events.filter(pl.col("iteration") == iteration, pl.col("kind") == "backward")
    begins = int(events["start_ns"].min())  # type: ignore[arg-type]
    middle = (int(rows["start_ns"].max()) + int(rows["end_ns"].min())) // 2 - begins  # type: ignore[arg-type]
    stage.evaluate("(root, t) => root.stage.goto(t)", middle)
    let_draw(stage.page, 500)  # words change four times per second


def pointed(stage: Locator, rank: int, lane: int, step: int = 4) -> list[tuple[float, str]]:
    """Return the tip's words along a rank's lane: the first x of each text, from left to right."""
    lanes, tip = stage.locator(".wb-tl-lanes"), stage.locator(".wb-tl-tip")
    lanes.scroll_into_view_if_needed()
    box = lanes.bounding_box()
    assert box is not None
    texts: list[tuple[float, str]] = []
    for x in range(LEFT, int(box["width"]) - 6, step):
        stage.page.mouse.move(box["x"] + x, box["y"] + TOP + ROW * rank + lane)
        words = tip.inner_text() if tip.is_visible() else ""
        if words and (not texts or texts[-1][1] != words):
            texts.append((x, words))
    return texts


@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "light"), (992, "dark")]))
def test_pointing_at_a_bucket_names_its_parameters(
    saved: Saved, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 1000}).page
    stage = opened_page(page, saved.uri, "timeline")
    at_iteration(stage, saved.events, SETTLED)
    assert stage.evaluate(CLASHES) == []
    names = saved.buckets["rebuilt"]
    assert len(names) == 4
    for rank in (RANKS - 1,) if width == 672 else (0, RANKS - 1):
        talked, places = pointed(stage, rank, TALKING), [0.0]
        for bucket, own in enumerate(names):  # on the left, one of the iteration before may end
            lines = [(x, one) for x, one in talked if f"bucket {bucket} holds" in one]
            lines = [(x, one) for x, one in lines if x > places[-1]]
            assert lines, f"nothing on rank {rank} says what bucket {bucket} holds: {talked}"
            assert all(
                one.endswith(f"; bucket {bucket} holds {', '.join(own)}") for _, one in lines
            )
            places.append(lines[0][0])
        del places[0]
        # As far apart as the rows say.
        rows = saved.events.filter(
            pl.col("iteration") == SETTLED,
            pl.col("rank") == rank,
            pl.col("kind") == "collective",
            pl.col("name").cast(pl.String).str.starts_with("bucket "),
        ).sort("start_ns")
        begins = rows["start_ns"].to_list()
        a_pixel = (begins[-1] - begins[0]) / (places[-1] - places[0])
        for at, moment in zip(places, begins, strict=True):
            assert abs((moment - begins[0]) / a_pixel - (at - places[0])) < 10, (places, begins)
    filled = [one for _, one in pointed(stage, 0, COMPUTING, step=2) if "backward" in one]
    for bucket, own in enumerate(names):
        words = f"until bucket {bucket} was full; bucket {bucket} holds {', '.join(own)}"
        assert any(words in one for one in filled), (bucket, filled)


@pytest.mark.full
def test_where_buckets_are_rebuilt_is_a_mark_with_words(saved: Saved, open_page: Open) -> None:
    stage = opened_page(open_page().page, saved.uri, "timeline")
    key = stage.locator(".wb-tl-key")
    at_iteration(stage, saved.events, 0)
    names = ", ".join(saved.buckets["first"][0][:6])
    first = [one for _, one in pointed(stage, 0, TALKING) if "bucket 0 holds" in one]
    # The leftmost: where ranks are slow, the window's right may hold the next iteration's already.
    assert first and first[0].endswith(f"holds {names} and 10 more")
    at_iteration(stage, saved.events, 1)
    most = f"{max(saved.buckets['bytes']) / 1e3:.1f} kB"
    for rank in range(RANKS):
        lines = [one for _, one in pointed(stage, rank, MARKED, step=2) if "rebuilt" in one]
        assert lines == [
            f"rank {rank} rebuilt its buckets in iteration 2: from now on in the order in which "
            f"gradients came, 4 of them instead of 1, at most {most} each"
        ]
    wait_for(lambda: "buckets rebuilt" in key.inner_text(), "the mark's key")
    at_iteration(stage, saved.events, SETTLED)
    assert not [one for _, one in pointed(stage, 0, MARKED, step=2) if "rebuilt" in one]


@pytest.mark.full
def test_a_click_on_a_bucket_keeps_its_words(saved: Saved, open_page: Open) -> None:
    stage = opened_page(open_page().page, saved.uri, "timeline")
    at_iteration(stage, saved.events, SETTLED)
    place = next(x for x, one in pointed(stage, 1, TALKING) if "bucket 2 holds" in one)
    box = stage.locator(".wb-tl-lanes").bounding_box()
    assert box is not None
    stage.page.mouse.click(box["x"] + place + 4, box["y"] + TOP + ROW + TALKING)
    words = ", ".join(saved.buckets["rebuilt"][2])
    wait_for(lambda: words in stage.locator(".wb-tl-words").inner_text(), "the bucket's parameters")
