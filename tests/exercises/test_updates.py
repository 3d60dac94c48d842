"""Chapter 22's ten wrong updates: the audit still says what the exercises judge by."""

from __future__ import annotations

import pytest

from tests.exercises.record_updates import audited, row
from workbench.exercises.chapter_22 import recorded
from workbench.exercises.wrong_updates import BUGS

pytestmark = pytest.mark.full  # ten audits; the chapter itself makes three of them


@pytest.mark.parametrize("bug", BUGS)
def test_the_audit_says_of_each_bug_what_was_recorded(bug: str) -> None:
    now, then = row(audited(bug)), recorded()[bug]
    assert (now["parameter"], now["factor"]) == (then["parameter"], then["factor"])
