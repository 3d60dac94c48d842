"""A mesh goes on after a lost rank and from a checkpoint, equal to the bit to a run without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import of
from tests.pairwise import first
from tests.training.mesh.test_mesh import TOKENS, experiment

LAYOUTS: list[dict[str, Any]] = [
    {"mesh": "fsdp 2, tp 2", **TOKENS},
    {"mesh": "pp 2, dp 2", "microbatches": 2},
]


def meshed(options: dict[str, Any], **fields: Any) -> wb.Experiment:
    return experiment(strategy="mesh", ranks=4, options=options, **{"iterations": 5, **fields})


def check_same(result: wb.Result, expected: wb.Result) -> None:
    assert result.losses[-2:] == expected.losses[-2:]
    assert result.parameters.keys() == expected.parameters.keys()
    assert all(value.equal(result.parameters[name]) for name, value in expected.parameters.items())


@pytest.mark.parametrize("options", first(1, LAYOUTS), ids=str)
def test_a_lost_rank_is_replaced_and_a_checkpoint_resumed(
    options: dict[str, Any], tmp_path: Path
) -> None:
    whole = wb.run(meshed(options)).wait(timeout=180)
    lost = wb.Kill(rank=1, at_iteration=3)
    run = wb.run(meshed(options, recovery="replace", faults=(lost,)))
    check_same(run.wait(timeout=180), whole)
    assert of(run.events, kind="rebuild").height
    kept = wb.Checkpoint(folder=str(tmp_path), every=3)
    wb.run(meshed(options, iterations=3, checkpoint=kept)).wait(timeout=180)
    check_same(wb.run(meshed(options, resume=str(tmp_path))).wait(timeout=180), whole)


@pytest.mark.full
def test_a_checkpoint_of_another_mesh_is_refused(tmp_path: Path) -> None:
    kept = wb.Checkpoint(folder=str(tmp_path), every=1)
    wb.run(meshed({"mesh": "tp 2, dp 2"}, iterations=1, checkpoint=kept)).wait(timeout=180)
    run = wb.run(meshed({"mesh": "dp 2, tp 2"}, resume=str(tmp_path)))
    with pytest.raises(wb.CheckpointError, match="the checkpoint is of mesh 'tp 2, dp 2'"):
        run.wait(timeout=180)
