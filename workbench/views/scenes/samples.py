"""Samples: which sample went to which rank in which minibatch."""

from __future__ import annotations

from typing import Any

from workbench.training.sampling.facts import run_facts
from workbench.views.scenes import RunRecord


def facts(run: RunRecord) -> dict[str, Any]:
    """Return the minibatches that every rank has reported."""
    return {"samples": run_facts(run.metadata)}
