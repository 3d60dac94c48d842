"""``torchrun --max-restarts``: what ended ranks left in the store misleads no other."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import workbench as wb
from tests.processes import command, run
from workbench import laws
from workbench.common.errors import RunTimeout, WorkbenchError
from workbench.runs.attach import Watching
from workbench.store.recoveries import recoveries_of
from workbench.transports.rendezvous import Meeting, meet

SCRIPT = """
import os, signal, sys
import torch, torch.distributed as dist
import workbench
attempt, fails = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(sys.argv[1])
dist.init_process_group("workbench")
rank, x = dist.get_rank(), torch.ones(1000)
dist.all_reduce(x)
dist.broadcast(x, 1, group=dist.new_group([0, 1]))
assert (x == 2).all()
open(f"{sys.argv[2]}/{attempt}-{rank}", "w").close()
if attempt < fails and rank == attempt % 2:  # either rank, by an exit or a signal
    sys.exit(3) if attempt % 4 < 2 else os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
HOW = {"standalone": ["--standalone"], "static": ["--master-addr=127.0.0.1", "--master-port={}"]}


def _torchrun(how: str, restarts: int, folder: Path, timeout: float, **env: str) -> None:
    """A job of two ranks that fails in every attempt but the last."""
    script = folder / "job.py"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ended = command(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *(w.format(port) for w in HOW[how]),
            "--nproc-per-node=2",
            f"--max-restarts={restarts}",
            str(script),
            str(restarts),
            str(folder),
        ],
        timeout,
        **env,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    met = {path.name for path in folder.iterdir()} - {"job.py"}
    assert met == {f"{attempt}-{rank}" for attempt in range(restarts + 1) for rank in (0, 1)}


@pytest.mark.cluster
def test_a_job_is_there_again_after_a_restart_and_recorded_as_one(tmp_path: Path) -> None:
    job, trace = tmp_path / "job", tmp_path / "trace"
    job.mkdir()
    watching = Watching(trace)
    try:
        _torchrun("static", 1, job, 150.0, WORKBENCH_TRACE=str(trace))
        assert watching.wait(120)
        assert watching.state_in_words == ("finished", "All 2 ranks have ended, after 1 restart.")
        live, facts = watching.store.events, recoveries_of(watching.store.metadata)
    finally:
        watching.close()
    assert len(list(trace.glob("rank-?-*"))) == 4 and len(list(trace.glob("*-restart-1"))) == 2

    loaded = wb.load(trace)
    events = loaded.events
    assert laws.check_events(events, complete=False) == []
    spans = events.filter(kind="collective").group_by("generation", "rank", "collective").len()
    counts = {tuple(map(str, row[:3])): row[3] for row in spans.rows()}
    for rank in ("0", "1"):
        for generation in ("0", "1"):  # the crash's record too
            assert counts[generation, rank, "all_reduce"] == 1
            assert counts[generation, rank, "broadcast"] == 1
        assert counts["1", rank, "barrier"] == 1
    order = ["rank", "lane", "seq"]
    assert events.select(order).is_unique().all()
    assert events.sort(order).equals(live.sort(order)), "what was watched is what is read"
    (restart,) = facts
    assert restart.generation == 1 and restart.members == restart.fresh == (0, 1)
    assert [*restart.lost] == ["0"], "rank 0 exits in the first attempt"
    assert recoveries_of(loaded.store.metadata) == facts
    late = Watching(trace)  # a late watcher sees both attempts too
    try:
        assert late.wait(120) and late.store.events.sort(order).equals(events.sort(order))
        assert recoveries_of(late.store.metadata) == facts
    finally:
        late.close()
    assert "rank 0 failed; torchrun restarted the job with ranks 0 and 1" in repr(loaded.recovery())
    processes = json.loads(loaded.store.metadata["processes"])
    places = [(one["generation"], one["rank"], one["host"]) for one in processes]
    assert places == [(g, r, os.uname().nodename) for g in (0, 1) for r in (0, 1)]
    loaded.store.to_perfetto(tmp_path / "run.json")
    flows = (tmp_path / "run.json").read_text().count('"flow_out"')
    assert flows == len(events.filter(kind="recv"))

    (trace / "rank-0-1").mkdir()  # of a rank that was killed while it joined
    assert wb.load(trace).events.equals(events)


@pytest.mark.full
def test_two_jobs_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    for times in (1, 2):
        script = f"""
import torch, torch.distributed as dist, workbench
dist.init_process_group("workbench")
for _ in range({times}):
    dist.all_reduce(torch.ones(4))
"""
        run(script, 2, env={"WORKBENCH_TRACE": str(tmp_path)})

    def sums(loaded: Any) -> int:
        return len(loaded.events.filter(kind="collective", rank=0))

    with pytest.warns(UserWarning, match=r"of 2 jobs, .* number 1, the newest.*job=0"):
        assert sums(wb.load(tmp_path)) == 2
    with pytest.warns(UserWarning, match=r"these are of number 0:"):
        assert sums(wb.load(tmp_path, job=0)) == 1
    with pytest.raises(WorkbenchError, match=r"2 jobs; job=2 is none of them: write 0"):
        wb.load(tmp_path, job=2)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", HOW)
def test_twenty_restarts_out_of_twenty(how: str, tmp_path: Path) -> None:
    _torchrun(how, 10, tmp_path, 1100.0)


def _met(store: Any, size: int, seconds: float = 60.0) -> list[Meeting]:
    limit = timedelta(seconds=seconds)
    with ThreadPoolExecutor(size) as pool:
        ends = [
            pool.submit(meet, store(), rank, range(size), group="default", timeout=limit)
            for rank in range(size)
        ]
        return [end.result() for end in ends]


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_every_attempt_meets_under_a_name_of_its_own(kind: str, tmp_path: Path) -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def store() -> Any:
        if kind == "file":
            return dist.FileStore(str(tmp_path / "store"))
        return dist.TCPStore("127.0.0.1", server.port, is_master=False)

    meetings = [_met(store, size) for size in (3, 3, 2, 4, 3)]
    assert all(len(set(ranks)) == 1 for ranks in meetings), "all ranks of an attempt agree"
    assert len({ranks[0].name for ranks in meetings}) == len(meetings)
    assert len({ranks[0].job for ranks in meetings}) == 1
    assert [ranks[0].attempt for ranks in meetings] == [0, 1, 2, 3, 4]


def test_what_a_former_rank_said_is_not_taken_for_the_new_one() -> None:
    """Rank 0 is there first, and finds words of all the others: of the former attempt."""
    store = dist.HashStore()
    (former, *_) = _met(lambda: store, 3)
    first = threading.Thread(target=lambda: meetings.append(_one(store, 0)))
    meetings: list[Meeting] = []
    first.start()
    first.join(0.3)
    assert first.is_alive() and not meetings, "rank 0 waits for ranks that are not there any more"
    rest = [threading.Thread(target=lambda r=r: meetings.append(_one(store, r))) for r in (2, 1)]
    for one in rest:
        one.start()
    for one in (first, *rest):
        one.join(30)
    assert len(meetings) == 3 and len(set(meetings)) == 1 and meetings[0].name != former.name


def _one(store: Any, rank: int) -> Meeting:
    return meet(store, rank, range(3), group="default", timeout=timedelta(seconds=30))


def test_a_rank_that_does_not_come_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workbench.transports.rendezvous.NOTICE_S", 0.1)
    store = dist.HashStore()
    world, limit = [0, 4, 7], timedelta(seconds=2)
    words = r"rank 0 of group mesh \(3 ranks\): ranks 4, 7 did not join it\..*is 2 s.*timeout="
    with pytest.raises(RunTimeout, match=words):
        meet(store, 0, world, group="mesh", timeout=limit)
    noticed = capfd.readouterr().err  # on busy cores, late
    assert re.search(r"ranks 4, 7 did not join it for \d+ s: still waiting", noticed)
    with pytest.raises(RunTimeout, match=r"rank 4 of group mesh .*ranks 0, 7 did not join it"):
        meet(dist.HashStore(), 1, world, group="mesh", timeout=limit)


SAME_FILE = """
import sys, torch, torch.distributed as dist
import os, workbench
rank = int(os.environ["RANK"])
for again in range(3):
    dist.init_process_group("workbench", init_method="file://" + os.environ["SHARED"], rank=rank,
                            world_size=2)
    x = torch.ones(5)
    dist.all_reduce(x)
    assert (x == 2).all()
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.full
def test_a_store_of_a_former_job_and_of_a_former_group(tmp_path: Path) -> None:
    for _ in range(2):
        ended = run(SAME_FILE, 2, env={"SHARED": str(tmp_path / "store")})
        assert [rank.code for rank in ended] == [0, 0], ended
