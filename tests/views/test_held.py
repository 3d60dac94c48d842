"""What ranks of a sharded model hold: the curve and its chart by a run's own rows, the still."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest

import workbench as wb
from workbench.analysis import shards
from workbench.analysis.curves import HELD, Curves, select
from workbench.analysis.metric_rows import ROWS
from workbench.analysis.shard_charts import EMPTY, cell
from workbench.store.event_store import Store
from workbench.views.pages.facts import facts
from workbench.views.pages.figures import figure
from workbench.views.stills.still import select as select_still
from workbench.views.stills.svg import svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def run() -> wb.Run:
    training_run = wb.run(wb.Experiment(strategy="fsdp", ranks=2, iterations=4, optimizer="adam"))
    training_run.wait(timeout=90)
    return training_run


def rows(ranks: int, iterations: int) -> pl.DataFrame:
    """Each rank tells four times an iteration what it holds, and how much of it is activations."""
    table = [
        (rank, k, name, float(value), 1000 * k + 10 * at + rank)
        for rank in range(ranks)
        for k in range(iterations)
        for at, (whole, active) in enumerate([(10, 0), (30, 5), (50 + rank, 40), (10, 0)])
        for name, value in (("held", whole), ("activations", active))
    ]
    return pl.DataFrame(table, schema=ROWS, orient="row")


def test_the_curve_is_what_was_held_and_the_model_s_part_of_it() -> None:
    curve = shards.curve(rows(2, 3).sample(fraction=1, shuffle=True, seed=2), 99, 0)
    of_rank_1 = curve.filter(pl.col("rank") == 1)
    assert of_rank_1["held"].to_list() == [10, 30, 51, 10] * 3
    assert of_rank_1["model"].to_list() == [10, 25, 11, 10] * 3
    assert of_rank_1["seconds"].is_sorted() and of_rank_1["unsharded"].unique().to_list() == [99]
    assert of_rank_1["end_ns"][2] == 21


def test_unsharded_is_parameters_gradients_and_the_optimizer_s_state(run: wb.Run) -> None:
    shards_facts = json.loads(run.store.metadata["shards"])
    assert shards_facts["states"] == 2  # Adam's two means
    whole = sum(layer["bytes"] for layer in shards_facts["layers"])
    assert shards.unsharded(run.store.metadata) == 4 * whole
    assert shards.unsharded({}) is None


def test_a_run_s_own_rows_piece_by_piece_or_at_once(run: wb.Run) -> None:
    live, late = Curves(run.store), select(run.store, HELD)
    live.update()
    assert HELD in live.offered and live.select(HELD).equals(late)
    memory_rows = run.events.filter((pl.col("name") == "held") & (pl.col("iteration") >= 0))
    assert late.height == memory_rows.height > 40
    assert late["held"].to_numpy().max() == memory_rows["value"].to_numpy().max()
    assert (late["model"] <= late["held"]).all() and (late["model"] > 0).all()
    most = late["model"].to_numpy().max()
    assert most < late["unsharded"][0], "sharding keeps each rank below a whole copy"


def test_batches_as_they_come_give_what_the_store_gives(run: wb.Run) -> None:
    live = shards.Held(run.store)
    for piece in run.store.pieces(run.store.tap().position):
        live.of_frame(piece)
    experiment = wb.Experiment(strategy="fsdp", ranks=2, iterations=3)
    other = wb.run(experiment)
    curves = Curves(other.store)
    while not other.done:  # taps raw batches while the ranks run
        time.sleep(0.02)
        curves.update()
    other.wait(timeout=60)
    curves.update()
    assert curves.select(HELD).equals(select(other.store, HELD))
    assert live.rows.height > 0


def test_of_a_long_run_the_newest_iterations_are_kept() -> None:
    kept = shards.Held(Store.from_frame(wb.run(wb.Experiment(iterations=1)).events, {}))
    for k in range(3):
        shift = rows(2, 15).with_columns(iteration=pl.col("iteration") + 15 * k)
        kept._take(shift)
    assert kept.rows["iteration"].to_numpy().min() == 45 - shards.KEEP


def test_the_chart_has_a_line_of_steps_a_rank_and_the_theory(run: wb.Run) -> None:
    chart = figure(run.store, HELD)
    assert [trace.name for trace in chart.data] == ["rank 0", "rank 1", "unsharded"]
    assert all(trace.line.shape == "hv" for trace in chart.data[:2])
    assert set(chart.data[2].y) == {shards.unsharded(run.store.metadata)}
    assert "unsharded" in chart.layout.annotations[0].text
    assert EMPTY in cell(shards.curve(rows(2, 0), None, 0)).title
    many = cell(shards.curve(rows(12, 2), 99, 0))
    assert [trace.name for trace in many.traces] == ["rank 0", "rank 11", "unsharded"]
    assert np.all(np.diff(many.traces[0].x) > 0)


def test_other_runs_are_not_offered_it() -> None:
    other = wb.run(wb.Experiment(ranks=2, iterations=2))
    other.wait(timeout=60)
    curves = Curves(other.store)
    curves.update()
    assert HELD not in curves.offered
    assert select_still(other.store).selected is None, "data parallel keeps its ring"
    assert select_still(other.store).links


def test_the_still_shows_which_rank_has_which_layer_whole(run: wb.Run) -> None:
    still = select_still(run.store).selected
    assert still is not None and still.whole and "layers whole" in still.words
    curve = select(run.store, HELD)
    assert (
        max(still.model)
        == curve.filter(pl.col("iteration") > curve["iteration"].to_numpy().max() - 2)["model"]
        .to_numpy()
        .max()
    )
    assert [sum(parts) for parts in still.parts] == [
        layer["bytes"] for layer in facts(run.store.metadata)["shards"]["layers"]
    ]
    picture = ET.fromstring(svg(select_still(run.store)))
    words = [node.text or "" for node in picture.iter(f"{SVG}text")]
    assert "Who kept which part of which layer" in words and still.words in words
    framed = [r for r in picture.iter(f"{SVG}rect") if r.get("fill") == "none"]
    assert len(framed) == len(still.whole) + 1, "and one in the key"
    for node in picture.iter(f"{SVG}rect"):
        assert float(node.get("x", 0)) + float(node.get("width", 0)) <= 961


@pytest.mark.parametrize("ranks", [2, 16, 64])
def test_places_are_there_before_anything_is_gathered(ranks: int) -> None:
    layers = [
        {"name": f"layers.{i}", "kind": "", "bytes": 64, "parts": [1] * ranks} for i in range(40)
    ]
    shards_facts = {
        "kind": "fsdp2",
        "units": "layers",
        "free": True,
        "ahead": 0,
        "states": 0,
        "layers": layers,
    }
    spec = (
        wb.Experiment(strategy="fsdp", ranks=2, iterations=5)
        .to_yaml()
        .replace("ranks: 2", f"ranks: {ranks}")
    )
    store = Store.from_frame(
        wb.run(wb.Experiment(iterations=1)).events.clear(),
        {"experiment": spec, "shards": json.dumps(shards_facts)},
    )
    words = [n.text for n in ET.fromstring(svg(select_still(store))).iter(f"{SVG}text")]
    assert "No layer has been gathered yet." in words


def test_facts_name_servers_of_examples_and_which_stands_for_messages() -> None:
    def facts_of(**spec: object) -> dict[str, object]:
        exp = wb.Experiment(iterations=1, **spec)  # type: ignore[arg-type]
        return facts({"experiment": exp.to_yaml()})

    served = facts_of(strategy="data_servers", ranks=4, options={"servers": 2})
    assert served["inputs"] == {"servers": 2}
    assert facts_of(strategy="data_servers", ranks=4)["inputs"] == {"servers": 1}
    assert facts_of(ranks=2)["inputs"] is None
    from workbench.strategies import ad_psgd, malt

    def stands(strategy: object, name: str, ranks: int = 4, **options: object) -> object:
        exp = wb.Experiment(strategy=name, ranks=ranks, iterations=1, options=options)  # type: ignore[arg-type]
        config = strategy.Config(**options)  # type: ignore[attr-defined]
        return json.loads(strategy.prepare(exp, config)["peers"])["stands"]  # type: ignore[attr-defined]

    assert stands(malt, "malt") == []
    assert stands(malt, "malt", wait=True) is None
    assert stands(ad_psgd, "ad_psgd") == [0, 2]
