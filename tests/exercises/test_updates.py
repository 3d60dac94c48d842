"""Chapter 22's ten wrong updates: the audit still says what the exercises judge by."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from tests.exercises.record_updates import audited, row
from workbench.exercises.chapter_22 import STEP, recorded
from workbench.exercises.wrong_updates import BUGS

pytestmark = pytest.mark.full  # ten audits; the chapter itself makes three of them

FORGOTTEN = """
def average(name, grad, pair, same):
    if name.startswith("norm"):
        dist.all_reduce(grad, group=pair)
    if name != "bias":
        dist.all_reduce(grad, group=same)
        grad /= 2
"""


@pytest.mark.parametrize("bug", BUGS)
def test_the_audit_says_of_each_bug_what_was_recorded(bug: str) -> None:
    now, then = row(audited(bug)), recorded()[bug]
    assert (now["parameter"], now["factor"]) == (then["parameter"], then["factor"])


def test_zeros_that_are_updated_apart_are_copies_where_each_rank_uses_its_own(
    tmp_path: Path,
) -> None:
    """A bias that begins as zeros might be four shards, and then all else would be wrong."""
    script = tmp_path / "step.py"
    script.write_text(FORGOTTEN + STEP.format(name="average"))
    report = wb.audit(script, ranks=4, progress=False)
    assert {one.parameter for one in report.findings} == {"bias"} and report.verdict == "WRONG"
