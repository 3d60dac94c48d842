"""A program beside itself under ``workbench attach``: what it prints, and every collective that
torch's own flight recorder has seen. Tests only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import polars as pl

import workbench as wb
from tests.processes import command
from workbench import laws

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


def attach(*options: str, python: object = sys.executable) -> list[str]:
    """Return the command that attaches to what follows it."""
    return [str(python), "-m", "workbench.cli", "attach", "--no-page", *options, "--"]


def torchrun(*options: str, python: object = sys.executable) -> list[str]:
    return [str(python), "-m", "torch.distributed.run", "--standalone", *options]


def prints_the_same_and_every_collective_is_seen(
    program: Sequence[str], folder: Path, size: int = 2, python: object = sys.executable
) -> None:
    """Run the program without attach and with it: equal output of each rank, losses with every
    digit, and the same collectives as torch's recorder has counted without.
    """
    words = torchrun(f"--nproc-per-node={size}", python=python)
    plain = _plain([*words, *_apart(folder / "plain"), *program], folder)
    trace = folder / "trace"
    attaching = attach("--trace", str(trace), python=python)
    attached = command([*attaching, *words, *_apart(folder / "attached"), *program], 240)
    assert plain.returncode == 0, plain.stderr[-4000:]
    assert attached.returncode == 0, attached.stderr[-4000:]
    words_of = [printed(folder / one, size) for one in ("plain", "attached")]
    assert words_of[0] == words_of[1] and any(words_of[0]), "losses with every digit"
    loaded = wb.load(trace)
    assert loaded.dropped == 0 and laws.check_events(loaded.events) == []
    every_collective_is_seen(loaded.events, folder, size)


def _plain(words: Sequence[str], folder: Path) -> CompletedProcess[str]:
    """Run a program without attach. Gloo's threads let go of tensors while Python ends, for which
    a rank in ten aborted here after its last line: then the program is run again.
    """
    for _ in range(4):
        plain = command(words, 240, **counting(folder))
        if plain.returncode == 0:
            break
        logs = "".join(path.read_text() for path in folder.glob("plain/*/*/*/stderr.log"))
        assert "terminate called without an active exception" in logs, plain.stderr[-4000:]
        shutil.rmtree(folder / "plain")
    return plain


def counting(folder: Path) -> dict[str, str]:
    """Return the variables of a job whose ranks write what torch's recorder has seen."""
    (folder / "sitecustomize.py").write_text(COUNTS)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return {
        "COUNTS_OF_A_TEST": str(folder),
        "TORCH_FR_BUFFER_SIZE": "20000",
        "PYTHONPATH": path,
    }


def every_collective_is_seen(events: pl.DataFrame, folder: Path, size: int) -> None:
    """Assert that these events have each rank's collectives as torch's recorder counted them."""
    events = events.with_columns(pl.col(pl.Categorical).cast(pl.String))
    for rank in range(size):
        rows = events.filter(rank=rank)
        seen = Counter(rows.filter(kind="collective")["collective"])
        there = _counted(folder, rank)
        if "reduce_scatter" not in there:  # Gloo's is an all-reduce, and counted as such
            seen["all_reduce"] += seen.pop("reduce_scatter", 0)
        assert +seen == there, (rank, seen)
        assert there or "send" in rows["kind"], "messages, where there is no collective"


def printed(folder: Path, size: int = 2) -> list[str]:
    """Return what each rank has printed."""
    attempt = "*/attempt_0"
    return [next(folder.glob(f"{attempt}/{rank}/stdout.log")).read_text() for rank in range(size)]


def _apart(folder: Path) -> list[str]:
    """Return torchrun's options by which what ranks print does not mix."""
    return ["--redirects=3", f"--log-dir={folder}"]


def _counted(folder: Path, rank: int) -> Counter[str]:
    """Return how often torch's recorder has seen each collective."""
    entries = json.loads((folder / f"{rank}.json").read_text()).get("entries", [])
    names = [str(one["profiling_name"]).removeprefix("gloo:").split()[0] for one in entries]
    return Counter(OTHER_NAMES.get(name, name) for name in names if name not in ("send", "recv"))
