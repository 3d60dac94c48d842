"""Abort: the run ends with an error that names the lost rank, and how it ended."""

from __future__ import annotations

from workbench.experiment.team import Failure, Team


def recover(failure: Failure) -> Team | None:
    """Return None: no rank goes on."""
    return None
