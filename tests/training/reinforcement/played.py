"""Small runs of the pixel game, for tests of its laws."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import torch

import workbench as wb
from workbench import laws
from workbench.training.reinforcement.transitions import BESIDE

TRANSITION = 2 * 50 + BESIDE  # bytes
SMALL = {"learn_from": 60, "capacity": 400}  # replay is full, and evicts, within a test
IN_STEP = {
    "ape_x": (3, {"lockstep": True}),
    "gorila": (4, {"lockstep": True, "outlier_above": 0.0}),
    "bundle": (2, {"lockstep": True, "outlier_above": 0.0, "bundle": True}),
}
ALONE = {
    "ape_x": {"replay": "prioritised", "epsilon_first": 0.4, "epsilon": 0.4},
    "gorila": {"n_step": 1, "double": False},
    "bundle": {"n_step": 1, "double": False},
}


def game(strategy: str, ranks: int = 1, iterations: int = 60, **fields: Any) -> wb.Experiment:
    """An experiment on the pixel game; what is not a field is an option."""
    own = {name: fields.pop(name) for name in [*fields] if name not in wb.Experiment.model_fields}
    base = {"task": "catch", "batch_size": 16, "optimizer": "adam", "threads": 1, "lr": 0.002}
    return wb.Experiment(
        strategy=strategy,
        ranks=ranks,
        iterations=iterations,
        options={**SMALL, **own},
        **{**base, **fields},
    )


def done(exp: wb.Experiment) -> tuple[wb.Run, wb.Result]:
    run = wb.run(exp)
    return run, run.wait(timeout=240)


def lawful(run: wb.Run, *, complete: bool = True) -> pl.DataFrame:
    """The run's events, in which the laws of every run hold."""
    assert laws.check_events(run.events, complete=complete) == []
    return run.events


def roles(run: wb.Run) -> dict[str, list[int]]:
    return dict(json.loads(run.store.metadata["roles"]))


def counts(run: wb.Run) -> dict[int, Any]:
    """Return what each replay rank says at its end: transitions that came and that it dropped, by
    actor; those that it inserted.
    """
    return {
        int(key.removeprefix("replay ")): json.loads(text)
        for key, text in run.store.metadata.items()
        if key.startswith("replay ")
    }


def sent(events: pl.DataFrame, name: str, ranks: list[int] | None = None) -> pl.DataFrame:
    """The rows of messages of a kind, from these ranks."""
    rows = events.filter(pl.col("kind") == "send", pl.col("name") == name)
    return rows if ranks is None else rows.filter(pl.col("rank").is_in(ranks))


def metric(events: pl.DataFrame, name: str) -> pl.DataFrame:
    return events.filter(pl.col("kind") == "metric", pl.col("name") == name)


def same(a: wb.Result, b: wb.Result) -> bool:
    """The same losses and the same parameters, bit for bit."""
    return a.losses == b.losses and all(
        torch.equal(value, b.parameters[name]) for name, value in a.parameters.items()
    )
