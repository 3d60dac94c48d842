"""Experiments whose replicas mix, and how their tests run them."""

from __future__ import annotations

import json
from typing import Any

import torch

import workbench as wb
from tests.digits import Digits
from workbench.laws import check_events, replicas_identical
from workbench.training.gossip.start import spread_out
from workbench.training.parameter_servers.flat import Flat

LINEAR = 650  # elements of the small task's parameters
STILL = {"lr": 1e-12, "dtype": "float64"}  # gradients that change nothing


def mixed(strategy: str, ranks: int, **fields: Any) -> wb.Experiment:
    """Return a small experiment; names that are not fields are options."""
    own = {name: fields.pop(name) for name in [*fields] if name not in wb.Experiment.model_fields}
    base = {"task": Digits, "iterations": 30, "batch_size": 48, "lr": 0.05}
    return wb.Experiment(strategy=strategy, ranks=ranks, options=own, **{**base, **fields})


def ran(exp: wb.Experiment) -> tuple[wb.Run, wb.Result, dict[str, Any]]:
    """Return a run that went well, its result, and the facts of its peers. Its table keeps the
    laws of every table.
    """
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert not check_events(run.events)
    assert not replicas_identical(result.digests)
    assert sorted(result.digests) == list(range(exp.ranks))
    assert len(result.losses) == exp.iterations
    return run, result, json.loads(run.store.metadata["peers"])


def first_parameters(ranks: int) -> torch.Tensor:
    """Return what replicas begin with, made again here: a row per rank."""
    each = []
    for rank in range(ranks):
        torch.manual_seed(0)
        flat = Flat(Digits().model().double())
        spread_out(flat, 0.1, 0, rank)
        each.append(flat.values_N)
    return torch.stack(each)
