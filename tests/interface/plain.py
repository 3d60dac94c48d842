"""Experiments without code, as a form has them, drawn by Hypothesis."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.experiment.experiments import experiments
from workbench.experiment.spec import Experiment

many = settings(suppress_health_check=[HealthCheck.too_slow])


def without_code(exp: Experiment) -> Experiment:
    """The same, with names instead of code."""
    own = {name: Experiment.model_fields[name].default for name in exp.carries_code}
    return exp.replace(**own)


plain = experiments().map(without_code)
