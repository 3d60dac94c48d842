"""Programs in the style of public ones, unmodified, under ``workbench attach``: what they print,
losses with every digit, is as without it, and every collective is seen, by the count of torch's own
flight recorder.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.attaching import compared
from tests.processes import command
from workbench import laws

PROGRAMS = Path(__file__).parents[1] / "drop_in" / "programs"
NAMES = [
    "accumulating",
    "by_hand",
    "checkpointing",
    "ddp_tutorial",
    "dtensors",
    "fully_sharded",
    "local_sgd",
    "min_gpt",
    "nano_gpt",
    "pipeline",
    "tensor_parallel",
    "uneven_inputs",
]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_the_same_and_every_collective_is_seen(name: str, tmp_path: Path) -> None:
    program = [str(PROGRAMS / f"{name}.py"), "--backend=gloo"]
    compared.prints_the_same_and_every_collective_is_seen(program, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_job_that_torchrun_restarts_ends_as_without_a_failure(tmp_path: Path) -> None:
    """A rank is killed in the second of four epochs; the next attempt goes on from a snapshot."""
    words = compared.torchrun("--nproc-per-node=2", "--max-restarts=1")
    program, trace = str(PROGRAMS / "elastic.py"), tmp_path / "trace"
    plain = command([*words, program, str(tmp_path / "plain")], 240)
    attaching, failing = compared.attach("--trace", str(trace)), ["--fail-after=1"]
    snapshot = str(tmp_path / "attached")
    counts = compared.counting(tmp_path)  # of the attempt that ends by itself
    counts["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # over Gloo it would find the dead rank's
    counted = command([*words, program, str(tmp_path / "counted"), *failing], 240, **counts)
    attached = command([*attaching, *words, program, snapshot, *failing], 240)
    for job in (plain, counted, attached):
        assert job.returncode == 0, job.stderr[-4000:]
    for rank in range(2):
        unbroken, restarted = (
            (tmp_path / f"{name}.{rank}").read_text().split(": ") for name in ("plain", "attached")
        )
        assert (unbroken[0], restarted[0]) == ("epochs 0 to 3", "epochs 2 to 3")
        assert unbroken[1] == restarted[1], "every bit of the parameters"
    loaded = wb.load(trace)
    assert laws.check_events(loaded.events, complete=False) == []
    assert set(loaded.events["generation"].unique()) == {0, 1}, "both attempts are seen"
    last = loaded.events.filter(pl.col("generation") == 1)
    compared.every_collective_is_seen(last, tmp_path, 2)
