"""wb.drift on loops of scripts: no right one is called a bug, every wrong one is named."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.studies.drift.right_loops import RIGHT, adamw, clips
from tests.studies.drift.wrong_loops import (
    WRONG,
    adds_two_passes,
    weighs_ranks,
)
from workbench.studies.drift.drift import Report

WAIT = 500  # seconds, on cores that are busy with something else
FEW_RIGHT = (clips, adamw)
FEW_WRONG = (adds_two_passes, weighs_ranks)
FIELDS = {"batch_size": 12, "mutants": False, "at": (1,)}


def drifted(which, iterations: int) -> Report:
    """Return the report on these loops."""
    several = {one.__name__: one for one in which}
    return wb.drift(several, iterations=iterations, **FIELDS).wait(WAIT)


def names_no_bug(report, which) -> bool:
    return all(
        report.findings[one.__name__].kind in ("rounding", "no difference", "another algorithm")
        for one in which
    )


@pytest.mark.full
def test_a_loop_that_is_itself_on_one_rank_is_not_a_bug() -> None:
    """Clipping and AdamW are not plain SGD, and right."""
    report = drifted(FEW_RIGHT, 2)
    assert names_no_bug(report, FEW_RIGHT) and report.ok, str(report)
    for one in FEW_RIGHT:
        assert "equal to the same loop on one rank" in report.verdicts[one.__name__]
    assert report.over == len(report.plan)


def test_a_wrong_loop_is_named_by_its_ranks_gradients() -> None:
    report = drifted(FEW_WRONG, 1)
    for one in FEW_WRONG:
        verdict = report.verdicts[one.__name__]
        assert verdict.startswith("bug: ") and WRONG[one] in verdict, verdict


def fails_on_one_rank(rank, size, model, minibatches, loss):
    for x, y in minibatches:
        if size == 1:
            raise ValueError("two ranks are needed")
        loss((x[rank::size], y[rank::size])).backward()


@pytest.mark.full
def test_a_loop_that_needs_its_ranks_is_compared_with_sequential_training_only() -> None:
    report = wb.drift(fails_on_one_rank, iterations=1, **FIELDS).wait(WAIT)
    finding = report.findings["fails_on_one_rank"]
    assert finding.kind == "another algorithm" and "or a bug" in finding.which
    assert "two ranks are needed" in finding.reasons[-1]


@pytest.mark.full
def test_twenty_right_loops() -> None:
    assert len(RIGHT) == 20
    report = drifted(RIGHT, 3)
    assert names_no_bug(report, RIGHT), str(report)


@pytest.mark.full
def test_twenty_wrong_loops() -> None:
    assert len(WRONG) == 20
    report = drifted(WRONG, 3)
    verdicts = {one: report.verdicts[one.__name__] for one in WRONG}
    missed = {one.__name__: v for one, v in verdicts.items() if WRONG[one] not in v}
    assert not missed and all(v.startswith("bug: ") for v in verdicts.values()), missed
