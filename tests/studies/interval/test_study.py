"""wb.interval over real processes: kills, restarts, and what is left on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import lenet
from workbench.checkpoints.folder import Lock
from workbench.studies.interval.cases import kills
from workbench.studies.interval.display import as_texts, chart_bundle, table_bundle
from workbench.studies.interval.sweep import PLACE
from workbench.views.pages.following_output import PLOTLY

MTBF = 0.6  # seconds


def small(folder: Path, **fields: Any) -> wb.Experiment:
    plan = wb.Checkpoint(folder=str(folder), background=False)
    return lenet(**{"iterations": 9, "checkpoint": plan, **fields})


def certain(iterations: int, ranks: int) -> int:
    """Return a seed whose first failure comes soon, however slow or fast the machine is."""
    fewest = MTBF / 0.03  # iterations between failures: none is shorter than its pad
    return next(s for s in range(99) if len(kills(iterations, ranks, fewest, s)) == 1)


def test_runs_are_killed_restarted_measured_and_kept(tmp_path: Path) -> None:
    exp = small(tmp_path / "saved", pad_compute="30 ms", seed=certain(9, 2))

    def begin() -> Any:
        kept = tmp_path / "kept"
        return wb.interval(exp, mtbf=f"{MTBF} s", every=(1, 4), seeds=1, folder=kept)

    study = begin().wait(timeout=240)
    table, costs = study.table, study.costs
    assert study.iteration >= 0.03 and costs.checkpoint > 0 and costs.restart > 0
    drawn = kills(9, 2, MTBF / study.iteration, exp.seed)
    assert table["every"].to_list() == [1, 4] and table["failures"].to_list() == [len(drawn)] * 2
    for row in table.iter_rows(named=True):
        parts = row["checkpoint_s"] + row["lost_s"] + row["recovery_s"]
        assert 0 < parts < row["seconds"] and row["expected_s"] > costs.iteration
    lost = [sum(one.at_iteration % every for one in drawn) for every in (1, 4)]
    assert (table["lost_s"][1] > table["lost_s"][0]) or lost[1] == 0
    assert study.best in (1, 4) and "Young: a checkpoint every" in str(study)

    assert not (tmp_path / "saved" / PLACE).exists()  # its checkpoints are of no further use
    assert len([*(tmp_path / "kept").glob("*.parquet")]) == 3
    again = begin().wait(timeout=60)
    assert "2 from" in again.state and again.table.equals(table)
    for number in range(2):
        bundle = chart_bundle(study, number)
        assert "measured" in bundle["image/svg+xml"] or number
        assert (PLOTLY in bundle) == (number == 0)
    assert "Young" in table_bundle(study)["text/html"] and as_texts(table).height == 2
    assert len(study.figure("dark").data) >= 5


def test_a_study_that_is_stopped_is_over_soon_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    study = wb.interval(small(tmp_path, iterations=100_000), mtbf="1 min", every=(9_000,))
    with pytest.raises(wb.RunTimeout, match="it goes on"):
        study.wait(timeout=0.5)
    with pytest.raises(wb.SpecError, match="another run writes its checkpoints"):
        wb.interval(small(tmp_path), mtbf="1 s", every=(2,))
    study.stop()
    study.wait(timeout=60)
    assert study.done and study.table.height == 0 and study.costs is None and study.best is None
    chart_bundle(study, 0)
    assert not (tmp_path / PLACE).exists()
    Lock(tmp_path).close()


def test_failures_that_leave_no_time_to_train_are_said(tmp_path: Path) -> None:
    study = wb.interval(small(tmp_path), mtbf="10 us", every=(2,))
    with pytest.raises(wb.WorkbenchError, match="an iteration alone takes"):
        study.wait(timeout=120)


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        ({}, {"mtbf": "0 s"}, "mtbf"),
        ({}, {"mtbf": "-2 s"}, "mtbf"),
        ({}, {"mtbf": 2}, "mtbf"),
        ({}, {"every": (0,)}, "every"),
        ({}, {"every": ()}, "every"),
        ({}, {"every": (2, 2)}, "each interval once"),
        ({}, {"every": (2, 9)}, "9 iterations would write no checkpoint"),
        ({}, {"seeds": 0}, "seeds"),
        ({"checkpoint": None}, {}, "this experiment writes none"),
        ({"record": False}, {}, "record=False"),
        ({"faults": wb.Kill(rank=0, at_iteration=1)}, {}, "draws its own kills"),
        ({"backend": "gloo"}, {}, "needs backend='workbench'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, options: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    exp = small(tmp_path / "saved", **options)
    with pytest.raises((wb.SpecError, TypeError), match=message):
        wb.interval(exp, **{"mtbf": "1 s", "every": (2, 5), **fields})
    assert not (tmp_path / "saved").exists()
