"""``workbench attach --audit``: the job is judged before it starts, and then runs as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import command

PROGRAMS = Path(__file__).parent / "programs"
WORKBENCH = [sys.executable, "-m", "workbench.cli", "attach"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.parametrize(
    ("bug", "option", "status", "words"),
    [
        pytest.param("", "--audit", 0, "[audit] RIGHT: ", marks=pytest.mark.full),
        pytest.param("sum", "--audit", 0, "[audit] WRONG: every gr", marks=pytest.mark.full),
        ("sum", "--audit-strict", 3, "[audit] WRONG: every gradient is 2 times"),
    ],
)
def test_a_job_is_judged_before_it_starts(
    tmp_path: Path, bug: str, option: str, status: int, words: str
) -> None:
    options = ["--no-page", "--trace", str(tmp_path / "trace"), option]
    line = [*WORKBENCH, *options, "--", *TORCHRUN, str(PROGRAMS / "loop.py")]
    ended = command(line, 240, BUG=bug)
    assert ended.returncode == status, ended.stderr[-4000:]
    assert words in ended.stderr
    assert (tmp_path / "trace").exists() == (status == 0), "a strict audit starts no job"
