"""Programs in the style of public ones, unmodified, under ``workbench attach``: what they print,
losses with every digit, is as without it, and every collective is seen, by the count of torch's own
flight recorder.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.attaching.test_command import WORKBENCH
from tests.processes import command
from workbench import laws

PROGRAMS = Path(__file__).parents[1] / "drop_in" / "programs"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
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
# Beside the program, in each of its processes: writes what the flight recorder has at its end.
COUNTS = """
import atexit, os, sys
def write():
    if "torch" in sys.modules and "RANK" in os.environ:
        from torch._C._distributed_c10d import _dump_fr_trace_json as dump
        with open(f"{os.environ['COUNTS_OF_A_TEST']}/{os.environ['RANK']}.json", "wb") as file:
            file.write(dump(True, False))
if "COUNTS_OF_A_TEST" in os.environ:
    atexit.register(write)
"""
# What the recorder calls otherwise than the table.
OTHER_NAMES = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter"}


def apart(folder: Path) -> list[str]:
    """Return torchrun's options by which what ranks print does not mix."""
    return ["--redirects=3", f"--log-dir={folder}"]


def printed(folder: Path) -> list[str]:
    """Return what each rank has printed."""
    return [next(folder.glob(f"*/attempt_0/{rank}/stdout.log")).read_text() for rank in (0, 1)]


def counted(folder: Path, rank: int) -> Counter[str]:
    """Return how often torch's recorder has seen each collective."""
    entries = json.loads((folder / f"{rank}.json").read_text()).get("entries", [])
    names = [str(one["profiling_name"]).removeprefix("gloo:").split()[0] for one in entries]
    return Counter(OTHER_NAMES.get(name, name) for name in names if name not in ("send", "recv"))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_the_same_and_every_collective_is_seen(name: str, tmp_path: Path) -> None:
    program = [str(PROGRAMS / f"{name}.py"), "--backend=gloo"]
    (tmp_path / "sitecustomize.py").write_text(COUNTS)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    own = {"COUNTS_OF_A_TEST": str(tmp_path), "TORCH_FR_BUFFER_SIZE": "20000", "PYTHONPATH": path}
    plain = command([*TORCHRUN, *apart(tmp_path / "plain"), *program], 240, **own)
    trace, words = tmp_path / "trace", [*TORCHRUN, *apart(tmp_path / "attached"), *program]
    attached = command([*WORKBENCH, "--no-page", "--trace", str(trace), "--", *words], 240)
    assert plain.returncode == attached.returncode == 0, attached.stderr[-4000:]
    words_of = [printed(tmp_path / one) for one in ("plain", "attached")]
    assert words_of[0] == words_of[1] and any(words_of[0]), "losses with every digit"
    loaded = wb.load(trace)
    events = loaded.events.with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert loaded.dropped == 0 and laws.check_events(loaded.events) == []
    for rank in range(2):
        rows = events.filter(rank=rank)
        seen = Counter(rows.filter(kind="collective")["collective"])
        there = counted(tmp_path, rank)
        if "reduce_scatter" not in there:  # Gloo's is an all-reduce, and counted as such
            seen["all_reduce"] += seen.pop("reduce_scatter", 0)
        assert +seen == there, (rank, seen)
        assert there or "send" in rows["kind"], "messages, where there is no collective"
