"""``workbench stacks``: a job that knows nothing of us, started by torchrun, read from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.live import until
from tests.processes import command
from workbench.common.errors import WorkbenchError
from workbench.rank.stack_dumps import StackFrame
from workbench.runs.group_waits import wait_words, waits_in
from workbench.runs.running_job import RankProcess, running_ranks
from workbench.runs.stacks import RankStack, Stack, findings

STACKS = [sys.executable, "-m", "workbench.cli", "stacks"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
HELPER = f"import time; time.sleep(300)  # a child of rank 1, {os.getpid()}"
SCRIPT = """
import subprocess, sys, time
import torch, torch.distributed as dist

def load_batch(rank):
    if rank == 1:
        helper = subprocess.Popen([sys.executable, "-c", sys.argv[2]])
        open(sys.argv[1], "w").write("there")
        time.sleep(300)
    return torch.ones(4)

dist.init_process_group("gloo")
x = load_batch(dist.get_rank())
dist.all_reduce(x)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job whose rank 1 does not come to the all-reduce, and has a child of its own."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    started = subprocess.Popen([*TORCHRUN, str(script), str(tmp_path / "there"), HELPER])
    try:
        until(lambda: (tmp_path / "there").exists(), 120)
        yield started
    finally:
        subprocess.run(["pkill", "-KILL", "-f", HELPER], check=False)
        started.terminate()
        started.wait(60)


def test_the_rank_that_is_missing_in_a_collective_is_named(job: subprocess.Popen[bytes]) -> None:
    ranks = running_ranks(job.pid)
    assert [(one.rank, one.ranks) for one in ranks] == [(0, 2), (1, 2)], "no child of one"
    assert running_ranks(ranks[0].pid) == ranks, "by any of its ranks"

    lines: list[str] = []

    def stand() -> bool:
        lines[:] = command([*STACKS, str(job.pid)], 120).stdout.splitlines()
        return any("in all_reduce" in line for line in lines)

    until(stand, 120)
    assert lines == [
        "Rank 0 is in all_reduce, at line 14 of train.py, and has not moved.",
        "Rank 1 is at line 9 of train.py, in load_batch, and has not moved.",
        "all_reduce ends when rank 1 has joined it.",
    ]
    full = command([*STACKS, "--json", str(ranks[1].pid)], 120)
    (whole,) = (one for one in json.loads(full.stdout) if one["process"]["rank"] == 1)
    assert [frame["function"] for frame in whole["stacks"][0]["frames"]] == [
        "load_batch",
        "<module>",
    ]


def test_what_is_not_a_job_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="no process 4194305"):
        running_ranks(4194305)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        refused = command([*STACKS, str(sleeper.pid)], 60)
        assert refused.returncode == 1 and "no rank of a job runs at or below" in refused.stderr
    finally:
        sleeper.kill()
        sleeper.wait()


def standing(rank: int, call: str, line: int, *, moved: bool = False) -> RankStack:
    """Return a rank that stands in ``call``, called at a line of train.py."""
    torch = "/x/site-packages/torch/distributed/distributed_c10d.py"
    frames = (StackFrame(torch, 1, call), StackFrame("/home/me/train.py", line, "step"))
    stack = Stack("MainThread", False, frames if call else frames[1:])
    return RankStack(RankProcess(rank, 4, 100 + rank, 99, "train.py"), (stack,), moved)


def test_different_calls_are_a_finding_only_where_nothing_moves() -> None:
    ranks = [standing(0, "all_reduce", 5), standing(1, "broadcast", 7)]
    assert findings(ranks) == [
        "Ranks 2 and 3 of 4 are not on this host, or ended.",
        "Rank 0 is in all_reduce, at line 5 of train.py, in step, and has not moved.",
        "Rank 1 is in broadcast, at line 7 of train.py, in step, and has not moved.",
        "No rank moves, and they are in different calls: all_reduce, broadcast. If these are calls "
        "of one group, the ranks disagree about what comes next.",
    ]
    ranks[0] = standing(0, "all_reduce", 5, moved=True)
    assert "disagree" not in " ".join(findings(ranks))
    everyone = [standing(rank, "", 5, moved=True) for rank in range(4)]
    assert findings(everyone) == ["Ranks 0, 1, 2 and 3 are at line 5 of train.py, in step."]


def lanes(*rows: tuple[int, int, str, int]) -> pl.DataFrame:
    """Return what lanes are in: rank, peer, group, op."""
    names = ("rank", "peer", "group", "op")
    base = {"kind": "wait", "collective": "all_reduce", "since_ns": 0}
    return pl.DataFrame([base | dict(zip(names, row, strict=True)) for row in rows])


def test_a_circle_over_groups_is_told_hop_by_hop() -> None:
    groups = {"1": (0, 1), "2": (1, 2), "3": (0, 2)}
    hung = lanes((0, 1, "1", 0), (1, 2, "2", 0), (2, -1, "3", 0))
    words = wait_words(waits_in(hung, groups, (0, 1, 2)))
    assert words == [
        "Rank 0 waits for 1 in [0, 1], rank 1 waits for 2 in [1, 2], rank 2 waits for 0 in [0, 2]: "
        "a circle, and none of them can go on."
    ]
    late = lanes((0, -1, "default", 4), (2, -1, "default", 4))
    assert wait_words(waits_in(late, {}, (0, 1, 2))) == [
        "Rank 0 waits for rank 1 in a call of [0, 1, 2].",
        "Rank 2 waits for rank 1 in a call of [0, 1, 2].",
    ]
    assert wait_words(waits_in(lanes((0, -1, "1", 0), (1, -1, "1", 0)), groups, (0, 1))) == []
