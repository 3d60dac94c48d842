"""Training over parameter servers, for tests of its laws: a model of digits, what must hold."""

from __future__ import annotations

from typing import Any

import polars as pl
import torch

import workbench as wb
from tests.digits import Digits
from workbench import laws
from workbench.training.parameter_servers import laws as server_laws
from workbench.training.parameter_servers.clocks import policy

LENET = 61_706  # elements of its parameters
SHARES = [0.667, 0.167, 0.166]
JITTER = (wb.Jitter(probability=0.15, factor=6),)


def served(consistency: Any = "bsp", workers: int = 3, **fields: Any) -> wb.Experiment:
    """A small experiment with a parameter server; what is not a field is an option."""
    values = {**fields, "consistency": consistency}
    own = {name: values.pop(name) for name in [*values] if name not in wb.Experiment.model_fields}
    base = {"task": Digits, "iterations": 40, "batch_size": 48, "lr": 0.05}
    return wb.Experiment(
        strategy="parameter_server",
        ranks=workers + own.get("servers", 1),
        options=own,
        **{**base, **values},
    )


def elements(exp: wb.Experiment) -> list[int]:
    count = LENET if exp.task == "lenet_digits" else Digits.ELEMENTS
    return [count] * exp.options.get("models", 1)


def bound(exp: wb.Experiment) -> int | None:
    options = {"mode": exp.options.get("dssp_mode", "strict"), **exp.options}
    return policy(exp.options["consistency"], options).bound


def lawful(run: wb.Run, *, complete: bool = True) -> pl.DataFrame:
    """The run's events, in which every law holds: those of all runs, and the server's."""
    exp, events = run.experiment, run.events
    assert laws.check_events(events, complete=complete) == []
    limit = bound(exp)
    violations = server_laws.check_server(
        events, exp, elements=elements(exp), bound=limit, complete=complete
    )
    assert [str(one) for one in violations] == []
    return events


def done(exp: wb.Experiment) -> tuple[wb.Run, wb.Result]:
    run = wb.run(exp)
    return run, run.wait(timeout=120)


def led(run: wb.Run) -> int:
    options = run.experiment.options
    return server_laws.leads(run.events, options.get("servers", 1), options.get("models", 1))[
        "lead"
    ].max()


def same(a: wb.Result, b: wb.Result) -> bool:
    """The same parameters, bit for bit."""
    return a.parameters.keys() == b.parameters.keys() and all(
        torch.equal(value, b.parameters[name]) for name, value in a.parameters.items()
    )
