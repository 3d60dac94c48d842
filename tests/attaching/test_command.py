"""``workbench attach -- COMMAND``: the job is the job, and is seen."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.live import until
from tests.processes import ROOT, command
from workbench import laws
from workbench.attaching.command import prepare
from workbench.common.errors import SpecError, WorkbenchError

WORKBENCH = [sys.executable, "-m", "workbench.cli", "attach"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SCRIPT = """
import json, sys
import torch, torch.distributed as dist
if len(sys.argv) > 2:
    dist.init_process_group(sys.argv[2])
else:
    dist.init_process_group()
rank, x = dist.get_rank(), torch.full((1000,), dist.get_rank() + 1.0)
dist.all_reduce(x)
part = dist.new_group([0, 1])
dist.broadcast(x, 1, group=part)
for _ in range(400):
    dist.all_reduce(x)  # beyond what a float holds: silence, as over Gloo
said = {"backend": dist.get_backend(), "of part": dist.get_backend(part), "x": x[0].item()}
said["ours"] = "workbench" in sys.modules
if dist.get_backend() == "gloo":
    dist.monitored_barrier()
json.dump(said, open(f"{sys.argv[1]}/{rank}.json", "w"))
dist.destroy_process_group()
"""


def _attached(folder: Path, *words: str, observe: bool = False) -> list[dict[str, object]]:
    """Run SCRIPT attached, with these words; return what each rank said."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    options = ["--no-page", "--trace", str(folder / "trace"), *(["--observe"] * observe)]
    ended = command([*WORKBENCH, *options, "--", *TORCHRUN, str(script), str(folder), *words], 240)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stderr.startswith(f"[workbench] records {folder / 'trace'}\n")
    assert "overflow" not in ended.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


ON_CPU = pytest.mark.skipif(torch.cuda.is_available(), reason="torch would take NCCL here")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="nothing", marks=ON_CPU),
        pytest.param(["gloo"], id="gloo", marks=pytest.mark.full),
        pytest.param(["nccl"], id="nccl", marks=[pytest.mark.full, ON_CPU]),
        pytest.param(["cpu:gloo,cuda:nccl"], id="both", marks=[pytest.mark.full, ON_CPU]),
    ],
)
def test_a_script_that_knows_nothing_runs_over_the_engine(tmp_path: Path, words: list[str]) -> None:
    backend = words[0] if words else "gloo"
    one = {"backend": backend, "of part": backend, "x": float("inf"), "ours": True}
    assert _attached(tmp_path, *words) == [one, one]
    loaded = wb.load(tmp_path / "trace")
    assert laws.check_events(loaded.events) == [] and loaded.dropped == 0
    calls = loaded.events.filter(kind="collective", group="default", collective="all_reduce")
    assert calls.group_by("rank").len().sort("rank").rows() == [(0, 401), (1, 401)]
    assert set(calls["name"].unique()) == {"train.py:9", "train.py:13"}, "the lines that call"
    assert "send" in loaded.events["kind"], "chunk by chunk"


def test_exit_status_output_and_signals_are_the_jobs_own(tmp_path: Path) -> None:
    attach = [*WORKBENCH, "--no-page", "--trace", str(tmp_path), "--"]
    ended = command([*attach, "sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (ended.returncode, ended.stdout) == (7, "out\n")
    assert ended.stderr == f"[workbench] records {tmp_path}\nerr\n"
    assert command([*attach, "sh", "-c", "kill -TERM $$"]).returncode == -signal.SIGTERM

    quiet = [*WORKBENCH, "--quiet", "--no-page", "--trace", str(tmp_path), "--"]
    script = "trap 'exit 9' INT; echo $$; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*quiet, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None and job.stderr is not None
        assert int(job.stdout.readline()) == job.pid, "the command becomes the job"
        job.send_signal(signal.SIGINT)
        assert job.wait(120) == 9 and job.stderr.read() == ""


def test_a_terminal_stays_one(tmp_path: Path) -> None:
    """Both ends: the job sees a terminal, and what it writes there is all that comes."""
    ours, jobs = pty.openpty()
    words = [*WORKBENCH, "--quiet", "--no-page", "--trace", str(tmp_path), "--"]
    ended = subprocess.run(
        [*words, "sh", "-c", "test -t 0 && test -t 1 && tty"], stdin=jobs, stdout=jobs
    )
    assert ended.returncode == 0
    assert os.read(ours, 100).decode().split() == [os.ttyname(jobs)]
    os.close(ours)
    os.close(jobs)


def test_what_cannot_be_attached_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="name the command that starts the job, after two dashes"):
        prepare([], tmp_path, observe=False)
    with pytest.raises(SpecError, match="no program 'torchrum' on PATH"):
        prepare(["torchrum", "train.py"], tmp_path, observe=False)
    with pytest.raises(SpecError, match=r"no option .--no-browser.*after two dashes"):
        prepare(["--no-browser", "torchrun", "train.py"], tmp_path, observe=False)
    (tmp_path / "file").touch()
    with pytest.raises(WorkbenchError, match=r"cannot go to .*file: File exists.* --trace DIR"):
        prepare(["true"], tmp_path / "file", observe=False)
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    with pytest.raises(SpecError, match=r"keeps torch from loading the workbench.*unset it"):
        prepare(["true"], tmp_path, observe=False)


@pytest.mark.full
def test_the_page_is_there_while_the_job_runs_and_gone_after_it(tmp_path: Path) -> None:
    pytest.importorskip("panel")
    words = [*WORKBENCH, "--trace", str(tmp_path), "--", "sleep", "600"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=ROOT) as job:
        try:
            assert job.stderr is not None
            line = job.stderr.readline()
            match = re.fullmatch(rf"\[workbench\] page (http://\S+) · records {tmp_path}\n", line)
            assert match, line
            with urllib.request.urlopen(match[1], timeout=120) as page:  # once the server is up
                assert tmp_path.name in page.read().decode()
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text()
            assert children == "", "a job that waits for its children finds none of ours"
            assert _pages(tmp_path)
        finally:
            job.kill()
    until(lambda: not _pages(tmp_path), 60, "the page has ended")


def _pages(folder: Path) -> list[int]:
    """Return the processes that serve this folder's page."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"workbench.interface.app.attached_page" in words and str(folder).encode() in words:
            pids.append(int(path.parent.name))
    return pids
