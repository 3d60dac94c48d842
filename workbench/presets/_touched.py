"""Presets that are there to be touched while they run."""

from __future__ import annotations

from workbench.experiment.spec import Experiment


def touched(experiment: Experiment) -> Experiment:
    """Return the same until its user stops it, and for at most two minutes: long enough to change a
    link, or to freeze a rank. Its iterations are more than two minutes have room for.
    """
    return experiment.replace(iterations=100_000, stop_after="2 min")
