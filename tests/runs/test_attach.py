"""Another user's job is followed while it runs, from its files alone, and loses no row."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.live import ROOT, until
from tests.pairwise import first
from tests.processes import run as run_ranks
from workbench.common.errors import WorkbenchError
from workbench.recording.events import CONTEXTS, ROWS, SEND, WAIT
from workbench.recording.recorder import Recorder
from workbench.runs.attach import Watching
from workbench.store import growing_file
from workbench.store.event_store import Store
from workbench.store.trace_follower import Follower
from workbench.store.trace_sources import Source, is_living
from workbench.views.packing import Message
from workbench.views.pages.feed import Feed

ORDER = ["rank", "lane", "seq"]
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
import workbench
dist.init_process_group("workbench")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = torch.zeros(1)
for i in range(6000):
    optimizer.zero_grad()
    model(torch.ones(5, 300)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
    seen += os.path.exists(sys.argv[1])
    dist.all_reduce(seen)  # so that both end in the same iteration
    if seen:
        break
dist.destroy_process_group()
"""


def as_loaded(store: Store) -> pl.DataFrame:
    return store.events.sort(*ORDER).with_columns(pl.col(pl.Categorical).cast(pl.String))


def same_as_loaded(store: Store, folder: Path) -> None:
    loaded = wb.load(folder).store
    assert as_loaded(store).equals(as_loaded(loaded), null_equal=True)
    assert store.dropped == loaded.dropped


@pytest.mark.cluster
def test_a_torchrun_job_is_followed_while_it_runs(tmp_path: Path) -> None:
    folder, script = tmp_path / "trace", tmp_path / "train.py"
    script.write_text(TRAIN)
    watching = Watching(folder)
    assert watching.state_in_words[0] == "starting" and str(folder) in watching.state_in_words[1]
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WORKBENCH_TRACE": str(folder)}
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            [*words, str(script), str(tmp_path / "seen")],
            env={**env, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        grown: list[int] = []
        under_way: set[str] = set()

        def grows() -> bool:
            assert job.poll() is None, (tmp_path / "log").read_text()[-2000:]
            if len(watching.store) > (grown[-1] if grown else 0):
                grown.append(len(watching.store))
            under_way.update(watching.store.now["kind"].cast(pl.String))
            return len(grown) >= 15 and bool(under_way)

        until(grows, 90, "rows come while the job runs")
        assert not watching.done and watching.state_in_words == ("running", "")
        assert watching.ranks == 2 and sorted(watching.pids) == [0, 1]
        assert set(watching.events["rank"].unique()) == {0, 1}
        assert 0 < watching.overhead().share < 1
        (tmp_path / "seen").touch()
        assert job.wait(60) == 0
        assert watching.wait(20), "the end is seen"
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        watching.close()
    assert watching.state_in_words == ("finished", "All 2 ranks have ended.")
    assert watching.control_state.ended == {} and not watching.problems
    same_as_loaded(watching.store, folder)
    assert watching.dropped == 0 and watching.overhead().samples > 0


@pytest.mark.parametrize(
    ("end", "pattern"),
    first(
        1,
        [
            ("raise ValueError('on purpose')", r"rank 1 \(process \d+\) raised ValueError: on pur"),
            (
                "os.kill(os.getpid(), signal.SIGKILL)",
                r"rank 1 \(process \d+\) was killed, or crash",
            ),
            ("os._exit(3)", r"rank 1 \(process \d+\) was killed, or crashed"),
        ],
    ),
)
def test_a_rank_that_ends_badly_is_named(tmp_path: Path, end: str, pattern: str) -> None:
    script = f"""
import os, signal, time
import torch, torch.distributed as dist
import workbench
dist.init_process_group("workbench")
dist.all_reduce(torch.ones(10))
if dist.get_rank() == 1:
    {end}
dist.all_reduce(torch.ones(10))
"""
    watching = Watching(tmp_path)
    try:
        ended = run_ranks(script, 3, env={"WORKBENCH_TRACE": str(tmp_path)})
        assert [rank.code == 0 for rank in ended] == [False] * 3
        assert watching.wait(20)
    finally:
        watching.close()
    state, words = watching.state_in_words
    assert state == "failed"
    assert re.match(pattern, words) and "Then ranks 0, 2 ended too." in words
    assert watching.control_state.ended[0].startswith("raised PeerLost: ")
    same_as_loaded(watching.store, tmp_path)


# ---- the reader, block by block


def in_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def test_rows_beyond_a_block_late_ranks_late_lanes_and_old_contexts(tmp_path: Path) -> None:
    """A writer that goes on when told; what is there is read, once, and nothing before it is."""
    go, done = os.pipe(), os.pipe()

    def work() -> None:
        recorder = Recorder.into_folder(tmp_path, 0)
        recorder.joined(2)
        lane = recorder.lane("comm")
        outer = lane.context(recorder.name("outer"), op=7)
        for amount in (5, ROWS - 5, 2 * ROWS + 3):
            os.read(go[0], 1)
            for i in range(amount):
                if i % 3 == 0:
                    lane.context(recorder.name(f"inner {i % 5}"), op=i)
                lane.write(SEND, i, i + 1, 1, value=float(i))
            lane.again(outer)
            lane.write(WAIT, amount, amount)
            os.write(done[1], b"x")
        os.read(go[0], 1)
        recorder.lane("late").write(SEND, 1, 2)
        lane.status(WAIT, peer=1, op=3, step=2, chunk=1)
        os.write(done[1], b"x")
        os.read(go[0], 1)
        recorder.end("")

    def late() -> None:
        recorder = Recorder.into_folder(tmp_path, 1)
        recorder.lane("comm").write(SEND, 5, 6)
        recorder.end("")

    pid = in_child(work)
    follower = Follower(Store(), tmp_path)
    try:
        until(lambda: follower.poll() == 0 and follower.ranks, 10, "the rank is found")
        total = 0
        for amount in (5, ROWS - 5, 2 * ROWS + 3):
            os.write(go[1], b"x")
            os.read(done[0], 1)
            total += amount + 1
            assert follower.poll() == amount + 1 and follower.poll() == 0
            assert len(follower.store) == total
        os.write(go[1], b"x")
        os.read(done[0], 1)
        assert follower.poll() == 1
        now = follower.store.now.filter(lane="comm").row(0, named=True)
        assert (now["kind"], now["peer"], now["op"], now["step"]) == ("wait", 1, 3, 2)
        assert follower.size == 2 and not follower.over
        other = in_child(late)
        os.waitpid(other, 0)
        until(lambda: follower.poll() == 1, 5, "the late rank's row")
        assert not follower.over
    finally:
        os.write(go[1], b"x")
        os.waitpid(pid, 0)
    until(lambda: follower.poll() == 0 and follower.over, 5, "the end")
    assert total > 2 * ROWS and total / 3 > 2 * CONTEXTS, "several blocks of both"
    same_as_loaded(follower.store, tmp_path)
    outer = follower.store.events.filter(collective="outer")
    assert outer.height == 3 and (outer["op"] == 7).all()


@pytest.mark.timing
def test_an_idle_job_costs_next_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Recorder.into_folder(tmp_path, 0).lane("comm")
    for i in range(1000):
        lane.write(SEND, i, i + 1)
    follower = Follower(Store(), tmp_path)
    assert follower.poll() == 1000

    def never(*_: Any) -> None:
        raise AssertionError("nothing is new, and files are opened")

    monkeypatch.setattr(growing_file, "opened", never)
    cpu = follower.cpu_ns
    for _ in range(50):
        assert follower.poll() == 0
    assert (follower.cpu_ns - cpu) / 50 < 2e6, "under 5 % of a core at 25 per second"


@pytest.mark.parametrize("name", ["trace", "0.rows", "0.contexts"])
def test_a_file_that_is_cut_off_while_it_is_watched(tmp_path: Path, name: str) -> None:
    """Through a map it would end the watcher by a bus error. It is named; another rank is read on,
    and nothing says that the one whose file it was has ended badly.
    """
    lanes = []
    for rank in range(2):
        recorder = Recorder.into_folder(tmp_path, rank)
        recorder.joined(2)
        lanes.append(recorder.lane("comm"))
        lanes[rank].write(SEND, 1, 2)
    watching = Watching(tmp_path)
    try:
        until(lambda: len(watching.store) == 2, 20, "both ranks are read")
        folder = tmp_path / f"rank-1-{os.getpid()}"
        os.truncate(folder / name, 0)
        if name == "0.contexts":  # they are looked for where rows have come
            lanes[1].write(SEND, 2, 3)
        until(lambda: watching.problems, 20, "it is seen")
        problem = watching.problems[folder.name]
        assert re.fullmatch(rf"{re.escape(name)} has 0 bytes where [\d,]+ were: .* read", problem)
        lanes[0].write(SEND, 2, 3)
        until(lambda: len(watching.store) == 3, 20, "the other is read on")
        assert watching.state_in_words[0] == "running" and problem in watching.state_in_words[1]
        assert watching.control_state.ended == {} and watching.overhead().share >= 0
    finally:
        watching.close()


def test_a_folder_that_holds_another_job_too(tmp_path: Path) -> None:
    """The one whose process lives is followed; the other is named."""
    Recorder.into_folder(tmp_path, 0).lane("comm").write(SEND, 1, 2)
    own = tmp_path / f"rank-0-{os.getpid()}"
    old = tmp_path / "rank-0-1"
    own.rename(old)
    Recorder.into_folder(tmp_path, 0).lane("comm").write(SEND, 3, 4)
    os.utime(old, (0, 0))
    foreign = tmp_path / "rank-1-2"
    foreign.mkdir()
    (foreign / "trace").write_bytes(b"foreign!" * 50_000)
    watching = Watching(tmp_path)
    try:
        until(lambda: len(watching.store) == 1 and len(watching.problems) == 2, 5)
        assert watching.events["start_ns"].to_list() == [3]
        assert "a folder of its own" in watching.problems["rank-0-1"]
        assert "another version" in watching.problems["rank-1-2"]
        assert "rank-1-2: another version" in watching.state_in_words[1]
        assert watching.state_in_words[0] == "running"
    finally:
        watching.close()


def test_a_process_that_has_got_the_number_of_one_that_ended(tmp_path: Path) -> None:
    folder = tmp_path / f"rank-0-{os.getpid()}"
    folder.mkdir()
    assert is_living(Source(0, os.getpid(), folder))
    os.utime(folder, (1e9, 1e9))  # this process began later than that
    assert not is_living(Source(0, os.getpid(), folder))
    assert not is_living(Source(0, 2**22 - 1, folder))


def test_a_job_that_is_over_is_shown_as_it_ended(tmp_path: Path) -> None:
    def work() -> None:
        recorder = Recorder.into_folder(tmp_path, 0)
        recorder.joined(1)
        recorder.lane("comm").write(SEND, 1, 2)
        recorder.end("")

    os.waitpid(in_child(work), 0)
    watching = Watching(tmp_path)
    try:
        assert watching.wait(5)
    finally:
        watching.close()
    assert watching.state_in_words == ("finished", "The rank has ended.")
    assert len(watching.store) == 1


def test_what_cannot_be_watched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkbenchError, match="is a file; watch a folder"):
        Watching(tmp_path / "file")


# ---- what a page hears of it


def test_a_page_of_it_is_read_only_and_hears_every_row(tmp_path: Path) -> None:
    lane = Recorder.into_folder(tmp_path / "my job", 0).lane("comm")
    watching, messages = Watching(tmp_path / "my job"), list[Message]()
    try:
        page = Feed(watching).join(messages.append)
        page.hear({"type": "hello"})
        for i in range(500):
            lane.write(SEND, i, i + 1, 1)
            time.sleep(0.0005)
        until(lambda: sum(m.header["rows"] for m in messages) == 500, 5, "all rows are told")
        newest = messages[-1].header
        assert newest["run"]["readonly"] and newest["run"]["title"] == "my job"
        assert newest["state"] == "running" and newest["control"]["pids"] == {0: os.getpid()}
        starts = [
            np.frombuffer(m.payload, "<f8", m.header["rows"]) + newest["origin"] for m in messages
        ]
        assert np.concatenate(starts).tolist() == list(range(500))
        page.hear({"type": "do", "id": 1, "verb": "kill", "args": {"rank": 0}})
        until(lambda: any(m.header["type"] == "said" for m in messages), 5, "an answer")
        answer = next(m.header for m in messages if m.header["type"] == "said")
        assert not answer["ok"]
        page.leave()
    finally:
        watching.close()
