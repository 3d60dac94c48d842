"""A study's table, words and pictures, from measured runs that are made up here."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import polars as pl
import pytest

from workbench.studies.speed_up.charts import cells, figure
from workbench.studies.speed_up.still import svg
from workbench.studies.speed_up.table import Measured, amdahl, serial, table_of
from workbench.studies.speed_up.words import sentences

MACHINE = {"compute": {1: 1.0, 2: 1.9, 4: 2.0, 8: 2.0}, "copy": {1: 1.0, 2: 1.3, 4: 1.4, 8: 1.4}}


def run(ranks: int, seconds: float, series: str = "", **fields: float) -> Measured:
    values = {
        "threads": 1,
        "batch_size": 64,
        "exposed_ms": 1.0,
        "exposed_share": 0.1,
        "wait_share": 0.0,
        "core_wait_share": 0.0,
    } | fields
    return Measured(series, ranks, seconds=seconds, **values)  # type: ignore[arg-type]


def of(table: pl.DataFrame, ranks: int) -> dict[str, float]:
    return table.filter(ranks=ranks).row(0, named=True)


def test_speed_up_is_of_medians_against_the_fewest_ranks() -> None:
    table = table_of(
        [run(1, 0.9), run(1, 1.0), run(1, 9.0), run(2, 0.5), run(2, 0.5), run(4, 0.4)], MACHINE
    )
    assert table["ranks"].to_list() == [1, 2, 4] and table["repeats"].to_list() == [3, 2, 1]
    assert table["speed_up"].to_list() == pytest.approx([1, 2, 2.5])
    assert table["efficiency"].to_list() == pytest.approx([1, 1, 0.625])
    assert table["rank_seconds"].to_list() == pytest.approx([1, 1, 1.6])
    assert of(table, 1)["speed_up_most"] == pytest.approx(1 / 0.9)
    assert of(table, 1)["speed_up_least"] == pytest.approx(1 / 9)
    assert table["compute_ceiling"].to_list() == pytest.approx([1, 1.9, 2])


def test_of_two_and_more_ranks_all_is_against_two() -> None:
    table = table_of([run(2, 1.0), run(4, 0.6)], MACHINE)
    last = of(table, 4)
    assert last["ideal"] == 2 and last["speed_up"] == pytest.approx(1 / 0.6)
    assert last["compute_ceiling"] == pytest.approx(2 / 1.9)
    assert last["efficiency"] == pytest.approx(1 / 1.2)


def test_weak_scaling_counts_samples() -> None:
    """Twice the samples in the same time are twice as fast."""
    table = table_of([run(1, 1.0), run(2, 1.0, batch_size=128)], MACHINE, weak=True)
    assert of(table, 2)["speed_up"] == pytest.approx(2)
    assert table["amdahl"].null_count() == 2


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("times", [2, 4, 64])
def test_amdahl_and_karp_flatt_are_each_others_inverse(share: float, times: float) -> None:
    assert serial(amdahl(share, times), times) == pytest.approx(share)
    assert 1 <= amdahl(share, times) <= times
    assert amdahl(share, 1e12) == pytest.approx(1 / share if share else 1e12, rel=1e-3)


def test_amdahls_line_goes_through_the_first_two() -> None:
    table = table_of([run(1, 1.0), run(2, 0.6), run(8, 0.5)], MACHINE)
    assert of(table, 2)["amdahl"] == pytest.approx(of(table, 2)["speed_up"])
    assert of(table, 2)["serial"] == pytest.approx(0.2)
    assert of(table, 8)["amdahl"] == pytest.approx(1 / (0.2 + 0.8 / 8))


# -- words --


def test_the_words_name_the_machines_limit_and_which_rank_waits() -> None:
    runs = [run(1, 1.0), run(2, 0.55), run(4, 0.53, core_wait_share=0.44, exposed_share=0.25)]
    machine, line = sentences(table_of(runs, MACHINE), 2, padded=False)
    assert machine.startswith("This machine gives 2 cores: 4 processes that only compute do 2.0")
    assert "Beyond 2 ranks there is nothing to gain" in machine
    assert "4 ranks are 1.89 times as fast as 1, where 4 times would be ideal" in line
    assert "as fast as this machine's cores allow" in line
    assert "25% of a step is exposed communication" in line and "for each other" not in line
    assert "wait for a core 44% of the time" in line


def test_of_padded_computing_no_core_is_the_limit() -> None:
    machine, line = sentences(table_of([run(1, 1.0), run(4, 0.26)], MACHINE), 2, padded=True)
    assert "nothing to gain" not in machine and "needs no core" in machine
    assert line == "4 ranks are 3.85 times as fast as 1, where 4 times would be ideal."


def test_a_machine_that_is_busy_with_something_else_is_said() -> None:
    runs = [run(1, 1.0, core_wait_share=0.5), run(4, 0.5, core_wait_share=0.9)]
    assert "Something else is running" in sentences(table_of(runs, MACHINE), 2, padded=False)[-1]
    quiet = [run(1, 1.0, core_wait_share=0.01), run(4, 0.5, core_wait_share=0.5)]
    assert "else" not in " ".join(sentences(table_of(quiet, MACHINE), 2, padded=False))


def test_more_ranks_that_are_slower_are_said_to_be() -> None:
    assert "more ranks are slower" in sentences(table_of([run(1, 1), run(2, 2)], {}), 2, False)[1]


# -- pictures --


def study() -> pl.DataFrame:
    runs = [
        run(n, 1 / n**0.5, series, exposed_share=0.1 * n)
        for series in ("fast <links>", "slow links")
        for n in (1, 2, 4, 8)
    ]
    return table_of(runs, MACHINE)


def test_the_charts_have_every_line_with_a_name_and_a_look() -> None:
    speed, efficiency, exposed, cost = cells(study())
    assert [t.name for t in speed.traces] == [
        "this machine: computing",
        "this machine: copying memory",
        "ideal",
        "fast <links>",
        "slow links",
    ]
    assert [len(one.traces) for one in (efficiency, exposed, cost)] == [2, 2, 2]
    dashes = {look["line"]["dash"] for look in efficiency.looks}
    assert len(dashes) == 2, "lines are told apart by color alone"
    assert cost.traces[0].y[0] == pytest.approx(1000)


def test_one_line_has_amdahls_beside_it() -> None:
    (speed, *_) = cells(table_of([run(1, 1), run(2, 0.6)], {}))
    assert [t.name for t in speed.traces] == ["ideal", "Amdahl, from the first two", "measured"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_is_drawn(theme: str) -> None:
    plot = figure(study(), theme)
    assert len(plot.data) == 11 and plot.layout.xaxis.tickvals == (1, 2, 4, 8)
    assert len(figure(table_of([], {}), theme).data) == 0


def test_the_still_picture_is_svg_that_says_it_all() -> None:
    table = study()
    lines = sentences(table, 2, padded=False)
    root = ET.fromstring(svg(cells(table), lines, "over"))
    texts = "".join(root.itertext())
    assert "fast <links>" in texts and "this machine: computing" in texts
    assert root.get("aria-label") == " ".join(lines)
    width, height = (float(root.get(side)) for side in ("width", "height"))
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(circle.get("cx")) < width and 0 < float(circle.get("cy")) < height
    assert ET.fromstring(svg(cells(table_of([], {})), [], "measuring")) is not None
