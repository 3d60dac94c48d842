"""An audit that cannot measure says why, within its time, and leaves no process behind."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

import workbench as wb
from workbench.auditing.starting import LocalJob

HEAD = """
import os, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
"""


def audited(folder: Path, text: str, **options: object) -> wb.Audit:
    script = folder / "train.py"
    script.write_text(HEAD + text)
    return wb.audit(script, ranks=2, progress=False, **options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('done')", "the script ended, and made no process group: done"),
        ("1 / 0", "rank 0 with status 1.*made no process group: ZeroDivisionError"),
        ("dist.init_process_group('gloo')\nif rank: 1 / 0", "rank 1: ZeroDivisionError"),
        ("dist.init_process_group('gloo')\ndist.barrier()", "no backward pass from a loss"),
        (
            "dist.init_process_group('gloo')\ntorch.seed()\n"
            "w = torch.nn.Parameter(torch.randn(3))\n"
            "o = torch.optim.SGD([w], 0.1)\nw.square().sum().backward()\no.step()",
            "two runs from the same start differ.*Set a seed",
        ),
    ],
)
def test_it_abstains_with_a_reason(tmp_path: Path, text: str, words: str) -> None:
    import re

    result = audited(tmp_path, text)
    assert result.verdict == "ABSTAINS" and re.search(words, result.sentence), str(result)


def test_a_script_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    hang = "open(os.environ['PID'] + str(rank), 'w').write(str(os.getpid()))\n"
    hang += "dist.init_process_group('gloo')\nif rank: time.sleep(1000)\ndist.barrier()"
    env = {"PID": str(tmp_path / "pid")}
    result = audited(tmp_path, hang, timeout="3 s", env=env)
    assert result.verdict == "ABSTAINS" and "did not answer in time" in result.sentence
    assert time.monotonic() - began < 60
    for rank in (0, 1):
        pid = (tmp_path / f"pid{rank}").read_text()
        state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
        assert state.stdout.strip() in ("", "Z"), "a rank outlives its audit"


def test_other_things_than_scripts_are_refused() -> None:
    with pytest.raises(wb.SpecError, match=r"no such script"):
        wb.audit("/nowhere.py")
    with pytest.raises(wb.SpecError, match="take two: rank and size"):
        wb.audit(lambda_of_three)


def lambda_of_three(a: int, b: int, c: int) -> None:
    """Take too much."""


def test_the_end_of_a_job_is_read_whole_at_any_moment(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = LocalJob(folder, str(script), [], 1, {})
        until = time.monotonic() + 60
        while not job.end and time.monotonic() < until:
            pass  # not a moment between two looks
        assert job.end == "the script ended"
        job.close()
