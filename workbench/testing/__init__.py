"""Assertions for the tests of others.

from workbench.testing import assert_right_update

def test_update() -> None:
    assert_right_update("train.py", ranks=2)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from workbench.auditing.audit import LIMIT, audit
from workbench.auditing.report import Audit

__all__ = ["assert_right_update"]


def assert_right_update(
    script_or_function: str | os.PathLike[str] | Callable[..., Any],
    ranks: int = 2,
    *,
    allow: Sequence[str] = (),
    **options: Any,
) -> Audit:
    """Assert that the update of a training script is right, and return its Audit.

    Takes what ``wb.audit`` takes. ``allow``: further verdicts that pass, such as "QUESTION" for a
    stop-gradient on purpose. Raises AssertionError with all that the audit says, and SpecError for
    anything else than a script or a function.
    """
    options = {"progress": False, "timeout": LIMIT, **options}
    result = audit(script_or_function, ranks, **options)
    if result.verdict not in ("RIGHT", *allow):
        raise AssertionError(f"the update is not known to be right\n{result}")
    return result
