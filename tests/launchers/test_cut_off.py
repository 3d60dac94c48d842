"""A host that is cut off for a while: named, and what it recorded meanwhile arrives, once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import until
from workbench.launchers.processes import agent, elsewhere
from workbench.views.pages.facts import control

LAUNCHER = '''
"""Rank 0 on the driver's host, rank 1 on another, behind a wire that can be cut."""

import os
import socket
import subprocess
import sys
import threading
import time

from workbench.launchers.processes.elsewhere import AgentLauncher

whole = threading.Event()  # else no byte passes, and no call is answered
whole.set()
LATE = 0.0  # seconds

def pass_on(source, target):
    try:
        while (data := source.recv(65536)) and whole.is_set():
            target.sendall(data)
    except OSError:
        pass
    whole.wait()  # no end of a stream is heard through a cut
    for one in (source, target):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

class Launcher(AgentLauncher):
    encrypted = True

    def start(self, count, environment):
        address, key, fingerprint = environment["WORKBENCH_AGENT"].split("/")
        host, port = address.split(":")
        self.agents = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.wires, args=(host, int(port)), daemon=True).start()
        call = f"127.0.0.1:{self.listener.getsockname()[1]}/{key}/{fingerprint}"
        for rank in range(count):
            time.sleep(LATE * rank)
            at = address if rank == 0 else call.split("/")[0]
            own = {"WORKBENCH_AGENT": f"{at}/{key}/{fingerprint}", "RANK": str(rank)}
            words = [sys.executable, "-m", "workbench.launchers.processes.agent"]
            own |= {"WORKBENCH_HOST": f"h{rank}", "GLOO_SOCKET_IFNAME": "lo"}
            own = {**os.environ, **environment, **own}
            self.agents.append(subprocess.Popen(words, env=own))

    def wires(self, host, port):
        while True:
            try:
                agent, _ = self.listener.accept()
            except OSError:
                return
            whole.wait()
            try:
                driver = socket.create_connection((host, port))
            except OSError:
                agent.close()
                continue
            for ends in ((agent, driver), (driver, agent)):
                threading.Thread(target=pass_on, args=ends, daemon=True).start()

    def failure(self):
        return "an agent has ended" if any(one.poll() is not None for one in self.agents) else ""

    def close(self, ranks):
        super().close(ranks)
        self.listener.close()
        for agent in self.agents:
            agent.wait()
'''
EVER = 1_000_000  # iterations of a run that is stopped
TINY: dict[str, Any] = {"task": "mlp_layers", "ranks": 2, "batch_size": 12, "threads": 1}


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "wires.py"
    path.write_text(LAUNCHER)
    yield f"{path}:Launcher"


def wire() -> Any:
    """Return whether the wire is whole, of the launcher that was loaded last."""
    module = [one for name, one in sys.modules.items() if name.endswith("wires")][-1]
    return module.whole


def whole(events: pl.DataFrame) -> bool:
    """Return whether every lane has each of its rows once."""
    lanes = events.group_by("rank", "lane").agg(
        pl.col("seq").n_unique().alias("rows"), pl.len(), last=pl.col("seq").max()
    )
    return bool((lanes["rows"] == lanes["len"]).all() and (lanes["last"] + 1 == lanes["len"]).all())


def newest(events: pl.DataFrame) -> int:
    """Return the newest iteration with a row that has come."""
    return int(events["iteration"].max() or 0)  # type: ignore[arg-type]


def test_a_host_that_is_cut_off_is_named_and_nothing_is_lost_or_twice(launcher: str) -> None:
    """Training needs no link to the driver: it goes on."""
    exp = wb.Experiment(**TINY, iterations=EVER, launcher=launcher, pad_compute="20 ms")
    with wb.run(exp) as run:
        until(lambda: run.iteration > 2 or run.done)
        wire().clear()
        since = time.monotonic_ns()
        until(lambda: run.control_state.cut_off or run.done)
        assert dict(run.control_state.cut_off) == {1: "h1"}
        assert control(run.control_state, run.pids)["cut_off"] == {1: "h1"}
        now = newest(run.events)
        # What rank 0 says, which is in reach.
        until(lambda: newest(run.events) > now + 5 or run.done, every=0.1)
        middle = time.monotonic_ns()
        assert not run.events.filter(pl.col("rank") == 1, pl.col("end_ns") > since + 10**9).height
        wire().set()
        until(lambda: run.events.filter(name="back").height or run.done, every=0.1)
        assert not run.control_state.cut_off
        run.stop()
        result = run.wait(120)
        exp = wb.Experiment(**TINY, iterations=len(result.losses))
        assert result.losses == wb.run(exp).wait(120).losses, "it trained on as if nothing were"
        events = run.events
        assert run.dropped == 0 and whole(events)
        away = events.filter(pl.col("rank") == 1, pl.col("end_ns").is_between(since, middle))
        assert away["iteration"].n_unique() > 5, "what it recorded meanwhile is there"
        rows = events.filter(pl.col("name").is_in(["cut off", "back"]))
        assert rows.select("kind", "rank", "peer", "group", "name").rows() == [
            ("detect", -1, 1, "h1", "cut off"),
            ("detect", -1, 1, "h1", "back"),
        ]


@pytest.mark.full
def test_an_agent_that_waits_long_for_the_others_calls_again_and_its_rank_trains(
    launcher: str,
) -> None:
    """It hears nothing until all have called."""
    path = Path(launcher.partition(":")[0])
    path.write_text(LAUNCHER.replace("LATE = 0.0", f"LATE = {agent.SILENT + 1.0}"))
    run = wb.run(wb.Experiment(**TINY, iterations=3, launcher=launcher))
    assert run.wait(120).ok and run.dropped == 0 and whole(run.events)


@pytest.mark.full
def test_a_host_that_stays_away_is_named_and_its_rank_ends(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "LEAST_PATIENCE", 4.0)
    exp = wb.Experiment(**TINY, iterations=EVER, timeout="4 s", launcher=launcher)
    with wb.run(exp) as run:
        until(lambda: run.iteration > 2 or run.done)
        pid = run.pids[1]
        wire().clear()
        error = run.wait(120, check=False).error
        assert isinstance(error, wb.RunTimeout) and error.rank == 1, error
        assert "host h1 (rank 1) is cut off from the driver" in str(error)
        assert "timed out" in str(error)
        # Its agent cannot be told: it has a deadline.
        until(lambda: not Path(f"/proc/{pid}").exists())
        wire().set()


@pytest.mark.full  # of any launcher: that its rank is named
def test_an_agent_that_is_killed_is_not_a_cut(launcher: str) -> None:
    with wb.run(wb.Experiment(**TINY, iterations=EVER, launcher=launcher)) as run:
        until(lambda: run.iteration > 2 or run.done)
        stat = Path(f"/proc/{run.pids[1]}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        error = run.wait(120, check=False).error
        assert error is not None and "rank 1" in str(error) and "cut off" not in str(error)
