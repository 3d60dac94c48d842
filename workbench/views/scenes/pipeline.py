"""Pipeline: the stages of a model, what each computed when, and why it was idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.views.stills.pipeline import Piped, select
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_pipeline import marks

if TYPE_CHECKING:
    from workbench.views.scenes import RunRecord

__all__ = ["draw", "facts", "select"]

WIDE = True
COUNTS = ("ranks", "stages", "microbatches")


def facts(run: RunRecord) -> Mapping[str, Any]:
    """Return the pipeline's facts (training/pipelines/facts.py). Raises ValueError for what is
    stored as such and is none: pages believe their parts.
    """
    known = run.read("pipeline")
    if known is not None and not _is_whole(known):
        raise ValueError("what is stored under 'pipeline' does not describe one")
    return {"pipeline": known}


def _is_whole(known: Any) -> bool:
    if not isinstance(known, Mapping):
        return False
    counts, ranks, rows = map(known.get, COUNTS), known.get("rank_of"), known.get("rows")
    return (
        all(isinstance(count, int) and count > 0 for count in counts)
        and isinstance(ranks, list)
        and all(isinstance(rank, int) and 0 <= rank < known["ranks"] for rank in ranks)
        and isinstance(rows, list)
        and all(isinstance(row, list) and all(isinstance(a, str) for a in row) for row in rows)
    )


def draw(selected: Piped) -> list[str]:
    """Return one iteration, a row for each rank."""
    words = selected.words or "No iteration is complete yet."
    return [*title_lines("Where the time went", words), *marks(selected)]
