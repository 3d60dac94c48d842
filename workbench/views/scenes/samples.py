"""Samples: which sample went to which rank in which minibatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.training.sampling.facts import run_facts
from workbench.views.scenes import RunRecord
from workbench.views.stills.svg_samples import svg

ON_REQUEST = WIDE = True  # every run has samples


def facts(run: RunRecord) -> dict[str, Any]:
    """Return the minibatches that every rank has reported."""
    return {"samples": run_facts(run.metadata)}


def select(rows: object, facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the minibatches that ranks have reported; None where there are none yet."""
    samples = facts.get("samples")
    return samples if samples and samples.get("minibatches") else None


def draw(selected: Mapping[str, Any]) -> list[str]:
    """Return the picture of a partition, below the first line."""
    picture = svg(selected, "Which rank took which samples", high=230)
    return [picture.replace("<svg ", '<svg x="0" y="36" ', 1)]
