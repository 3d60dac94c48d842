"""Training on a mesh is sequential training, and sends what its formula says, to the byte.

Losses and parameters equal those of one process in float64; each axis alone on 4 ranks, and all
pairs. A sum that is left out, or is there twice, must not pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.pairwise import first
from workbench.laws import check_events

SMALL = {"layers": 2, "width": 16, "heads": 4, "context": 8}
ITERATIONS, BOUND = 3, 1e-10
TOKENS = {"sequence_parallel": True}

ALONE: list[dict[str, Any]] = [
    {"mesh": "fsdp 4"},
    {"mesh": "tp 4", **TOKENS},
    {"mesh": "pp 4", "microbatches": 4},
    {"mesh": "dp 4"},
    {"mesh": "tp 4"},
    {"mesh": "fsdp 4", "zero": 0},
    {"mesh": "fsdp 4", "zero": 1},
    {"mesh": "fsdp 4", "zero": 2, "microbatches": 2},
    {"mesh": "pp 4", "microbatches": 5, "schedule": "gpipe"},
]
PAIRS: list[dict[str, Any]] = [
    {"mesh": "fsdp 2, tp 2", **TOKENS, "zero": 1},
    {"mesh": "pp 2, tp 2", "microbatches": 2, **TOKENS},
    {"mesh": "dp 2, fsdp 2", "microbatches": 2},
    {"mesh": "pp 2, fsdp 2", "microbatches": 3},
    {"mesh": "pp 2, dp 2", "microbatches": 2},
    {"mesh": "dp 2, tp 2"},
    {"mesh": "fsdp 2, tp 2", **TOKENS},
    {"mesh": "tp 2, fsdp 2"},
    {"mesh": "dp 2, fsdp 2", "zero": 0},
    {"mesh": "dp 2, fsdp 2", "zero": 2, "microbatches": 2},
    {"mesh": "dp 2, pp 2", "microbatches": 4, "schedule": "zb_h1"},
    {"mesh": "pp 2, fsdp 2", "zero": 1, "microbatches": 4, "schedule": "zb_h1"},
]
TRIPLES: list[dict[str, Any]] = [
    {"mesh": "pp 2, dp 2, tp 2", "microbatches": 2},
    {"mesh": "pp 2, fsdp 2, tp 2", "microbatches": 2, **TOKENS},
    {"mesh": "dp 2, fsdp 2, tp 2", **TOKENS},
    {"mesh": "tp 2, pp 2, fsdp 2", "microbatches": 2, "zero": 2},
    {"mesh": "pp 2, dp 2, fsdp 2", "microbatches": 3},
]


def experiment(**fields: Any) -> wb.Experiment:
    return wb.Experiment(
        **{
            "task": "char_transformer",
            "task_options": SMALL,
            "iterations": ITERATIONS,
            "batch_size": 10,  # 4 shares of it differ, and so do microbatches
            "dtype": "float64",
            "lr": 0.1,
            "momentum": 0.9,
            "threads": 1,
            "all_reduce": "ring",
            **fields,
        }
    )


@cache
def sequential() -> wb.Result:
    return wb.run(experiment(strategy="sequential", ranks=1)).wait(timeout=120)


def trained(options: dict[str, Any], **fields: Any) -> wb.Run:
    ranks = int(np.prod([int(one.split()[1]) for one in options["mesh"].split(",")]))
    run = wb.run(experiment(strategy="mesh", ranks=ranks, options=options, **fields))
    run.wait(timeout=180)
    return run


def off(result: wb.Result) -> float:
    """Return how far losses and parameters are from those of one process."""
    expected = sequential()
    assert len(result.losses) == ITERATIONS
    assert result.parameters.keys() == expected.parameters.keys()
    losses = np.abs(np.subtract(result.losses, expected.losses)).max()
    parameters = (
        (value - expected.parameters[name]).abs().max().item()
        for name, value in result.parameters.items()
    )
    return float(max(losses, *parameters))


@pytest.mark.parametrize(
    "options", [*first(3, ALONE), *first(3, PAIRS), *first(1, TRIPLES)], ids=str
)
def test_a_mesh_equals_one_process_and_sends_what_the_formula_says(options: dict[str, Any]) -> None:
    run = trained(options)
    result = run.result
    assert off(result) < BOUND
    assert len(set(result.digests.values())) == 1
    assert result.metrics == pytest.approx(sequential().metrics)
    assert not check_events(run.events) and not run.dropped
    table = run.axes()
    assert table["iteration"].n_unique() == ITERATIONS
    same = [pl.col(one).eq_missing(pl.col(f"formula_{one}")) for one in ("bytes", "calls")]
    exact = pl.all_horizontal(same)
    assert not table.filter(~exact).height, table.filter(~exact)
    assert table["bytes"].sum() > 0 and (table["exposed_ms"] >= 0).all()


def test_another_order_of_axes_sends_the_same_in_all() -> None:
    totals = [
        trained({"mesh": mesh}, iterations=1).axes().select("axis", "bytes").sum()["bytes"].item()
        for mesh in ("dp 2, tp 2", "tp 2, dp 2")
    ]
    assert totals[0] == totals[1] > 0


# -- what is wrong on purpose --


def without_partial_sums(job: Any, config: Any) -> None:
    """With sequence parallelism, norms keep the gradient of a rank's own positions."""
    from workbench.strategies import mesh
    from workbench.training.mesh import rank

    rank.add_together = lambda *_: None
    mesh.train(job, mesh.Config(mesh="tp 2", sequence_parallel=True))


def without_sum_backward(job: Any, config: Any) -> None:
    """The input of a column layer keeps the gradient of a rank's own columns."""
    from workbench.strategies import mesh
    from workbench.training.tensor_parallel import layers

    layers._Copy.backward = staticmethod(lambda ctx, grad: (grad, None, None))
    mesh.train(job, mesh.Config(mesh="tp 2"))


def with_sum_backward_too(job: Any, config: Any) -> None:
    """The sum after a row layer is made of gradients as well."""
    from workbench.strategies import mesh
    from workbench.training.tensor_parallel import layers

    def backward(ctx: Any, grad: Any) -> Any:
        return layers.dist.all_reduce(grad) or grad, None, None, None

    layers._Add.backward = staticmethod(backward)
    mesh.train(job, mesh.Config(mesh="tp 2"))


def with_data_line_left_out(job: Any, config: Any) -> None:
    """Gradients are not added up over dp."""
    from dataclasses import replace

    from workbench.strategies import mesh
    from workbench.training.mesh.rank import MeshRank

    line = MeshRank._line
    MeshRank._line = lambda self: replace(line(self), added=None)
    mesh.train(job, mesh.Config(mesh="dp 2"))


@pytest.mark.parametrize(
    "mutant",
    first(
        1,
        [
            without_partial_sums,
            without_sum_backward,
            with_sum_backward_too,
            with_data_line_left_out,
        ],
    ),
    ids=lambda mutant: mutant.__name__,
)
def test_a_mutant_fails_the_check(mutant: Any) -> None:
    result = wb.run(experiment(strategy=mutant, ranks=2)).wait(timeout=120)
    assert off(result) > 1e-6


# -- its update, judged from outside --


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "ranks"), [("dp 2", 2), ("fsdp 2", 2), ("dp 2, tp 2", 4)], ids=str
)
def test_the_audit_finds_the_update_right(mesh: str, ranks: int) -> None:
    small = {"layers": 1, "width": 8, "heads": 2, "context": 8}
    options = {"mesh": mesh}
    exp = experiment(
        strategy="mesh", ranks=ranks, batch_size=8, task_options=small, options=options
    )
    result = exp.audit(progress=False)
    assert result.verdict == "RIGHT", str(result)
