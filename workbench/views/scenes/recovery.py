"""Recovery: how long a run took to go on after it had lost ranks, and what that cost."""

from __future__ import annotations

from typing import Any

from workbench.store.recoveries import recoveries_of
from workbench.views.scenes import RunRecord, name_of_code
from workbench.views.stills.recovery import Waterfall, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_recovery import marks

__all__ = ["draw", "facts", "select"]


def facts(run: RunRecord) -> dict[str, Any]:
    """Return the recoveries so far, and the policy's name; "" where there is none."""
    policy = name_of_code(run.spec.get("recovery", "abort"))
    return {
        "recoveries": [one.as_fields() for one in recoveries_of(run.metadata)],
        "recovery": "" if policy == "abort" else policy,
    }


def draw(selected: Waterfall) -> list[str]:
    """Return a bar for each loss of ranks, a part of it for each phase."""
    return [*title_lines("How long each recovery took", selected.words), *marks(selected)]
