"""Helpers for tests of communication-efficient training: small runs, and how two compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import workbench as wb
from tests.live import lenet
from workbench.laws import replicas_identical

BOUND = {"float32": 1e-5, "float64": 1e-12}  # of losses
ITERATIONS = 24


def done(**fields: Any) -> wb.Result:
    result = wb.run(lenet(**{"iterations": ITERATIONS, "record": False, **fields})).wait(timeout=90)
    assert sorted(result.digests) == list(range(result_ranks := len(result.digests)))
    assert result_ranks == fields["ranks"] and not replicas_identical(result.digests)
    return result


def check_equal(
    result: wb.Result, losses: list[float], parameters: dict[str, torch.Tensor], dtype: str
) -> None:
    assert len(result.losses) == len(losses)
    difference = np.abs(np.subtract(result.losses, losses)).max()
    assert difference <= BOUND[dtype], f"losses differ by {difference:.2e}"
    assert result.parameters.keys() == parameters.keys()
    furthest = max((result.parameters[k] - parameters[k]).abs().max().item() for k in parameters)
    assert furthest <= 10 * BOUND[dtype], f"parameters differ by {furthest:.2e}"
