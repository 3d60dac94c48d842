"""``torchrun --nnodes MIN:MAX``: nodes that leave and join restart the job, seen as one run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import workbench as wb
from tests.live import until
from workbench import laws
from workbench.runs.attach import Watching
from workbench.store.recoveries import recoveries_of

JOB = Path(__file__).with_name("elastic_job.py")
PATIENCE_S = 150.0  # torch alone takes 15 s to miss an agent


def _agent(folder: Path, port: int, *, host: bool) -> subprocess.Popen[bytes]:
    """Start the torchrun of one node, of those that this job may have."""
    words = [
        *("--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d"),
        *(f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job", "--local-addr=127.0.0.1"),
        f"--rdzv-conf=is_host={int(host)},last_call_timeout=1",
    ]
    env = {
        **os.environ,
        "WORKBENCH_TRACE": str(folder / "trace"),
        "OMP_NUM_THREADS": "1",
        # With one store for all attempts, a node that joins waits for an address that torch
        # publishes in the first attempt only.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", *words, str(JOB), str(folder)]
    with (folder / "stderr").open("ab") as errors:
        return subprocess.Popen(command, env=env, stderr=errors, start_new_session=True)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return []


def _kill(agent: subprocess.Popen[bytes]) -> None:
    """End a node at once: its agent, and what that has started."""
    ranks = _children(agent.pid)
    for pid in (agent.pid, *ranks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    agent.wait()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_nodes_come_and_go_and_all_attempts_are_one_run(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    attempts, agents = tmp_path / "attempts", list[subprocess.Popen[bytes]]()
    watching = Watching(tmp_path / "trace")

    def reached(count: int) -> Callable[[], bool]:
        return lambda: attempts.exists() and len(attempts.read_text().splitlines()) == count

    try:
        agents = [_agent(tmp_path, port, host=True), _agent(tmp_path, port, host=False)]
        until(reached(1), PATIENCE_S, "two nodes train")
        _kill(agents[1])
        until(reached(2), PATIENCE_S, "one goes on")
        agents.append(_agent(tmp_path, port, host=False))
        until(reached(3), PATIENCE_S, "two again")
        (tmp_path / "enough").touch()
        ended = [agents[0].wait(PATIENCE_S), agents[2].wait(PATIENCE_S)]
        assert ended == [0, 0], (tmp_path / "stderr").read_text()[-4000:]
        assert watching.wait(PATIENCE_S)
        assert watching.state_in_words == ("finished", "All 2 ranks have ended, after 2 restarts.")
        assert not watching.problems
        live, facts = watching.store.events, recoveries_of(watching.store.metadata)
    finally:
        watching.close()
        for agent in agents:
            _kill(agent)

    each = [tuple(map(int, line.split())) for line in attempts.read_text().splitlines()]
    assert [size for size, _ in each] == [2, 1, 2]
    begun = [first for _, first in each]
    assert begun == sorted(begun) and begun[1] >= 5, "each goes on where the former one was"
    loaded = wb.load(tmp_path / "trace")
    events = loaded.events
    assert laws.check_events(events, complete=False) == []
    there = events.select("generation", "rank").unique().sort("generation", "rank").rows()
    assert there == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    order = ["rank", "lane", "seq"]
    assert events.sort(order).equals(live.sort(order)), "what was watched is what is read"
    assert recoveries_of(loaded.store.metadata) == facts
    assert [one.members for one in facts] == [(0,), (0, 1)]
    assert [dict(one.lost) for one in facts] == [{"1": "killed"}, {}]
    words = repr(loaded.recovery())
    assert "rank 1 failed; torchrun restarted the job with rank 0" in words
    assert "nodes joined or left; torchrun restarted the job with ranks 0 and 1" in words
