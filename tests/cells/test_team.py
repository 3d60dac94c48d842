"""Ranks that run cells, without a notebook: real processes, real messages, real ends."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.live import PATIENCE, crowding, gone, until
from workbench.cells import cell as cell_module
from workbench.cells.result import CellError, CellInterrupted
from workbench.cells.team import Ranks
from workbench.launchers.processes.pool import warm_pool
from workbench.store.event_store import Store
from workbench.views.pages.facts import circle_of, facts
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg

DEADLOCK = """
x = torch.zeros(2)
other = (rank + 1) % world_size
dist.recv(x, src=other)
dist.send(x, dst=other)
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Ranks]:
    ranks = wb.ranks(3)
    yield ranks
    ranks.close()
    assert gone(ranks.pids.values())


@pytest.fixture
def team(shared: Ranks) -> Iterator[Ranks]:
    """Three ranks that are used by many tests, which begin with nothing of another one's."""
    yield shared
    assert shared.execute("for name in [*vars()]:\n    if name == 'kept': del kept").ok


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stop_when(team: Ranks, *patterns: str) -> threading.Thread:
    """Interrupt the cell once one of its notes has all of these."""

    def has_all(note: str) -> bool:
        return all(re.search(pattern, note) for pattern in patterns)

    def stop() -> None:
        until(lambda: team._cell and any(map(has_all, team._cell.result.notes)), 20, str(patterns))
        team.stop()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    return thread


# ---- what a cell has, and leaves


def test_ranks_have_a_group_and_keep_their_variables(team: Ranks) -> None:
    result = team.execute("kept = torch.full((2,), float(rank))\ndist.all_reduce(kept)")
    assert result.ok and result.values == {} and result.check() is result
    assert team.execute("kept").values == dict.fromkeys(range(3), "tensor([3., 3.])")
    named = "rank, world_size, dist.get_rank(), dist.get_world_size(), dist.get_backend()"
    assert team.execute(named).values[2] == "(2, 3, 2, 3, 'workbench')"
    assert team.execute("__name__, dist.is_initialized();").values == {}  # ";" shows nothing
    assert team.execute("_ = 5\n1 + 1\nNone").values == {}


def test_ranks_whose_start_is_interrupted_have_ended_while_the_error_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(team: Ranks) -> None:
        raise KeyboardInterrupt

    before = {*warm_pool()._watchers} if warm_pool().pid else set()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
        patch.setattr(Ranks, "_regroup", interrupted)
        wb.ranks(2)
    assert {*warm_pool()._watchers} <= before and caught.tb is not None


def test_some_ranks_run_a_cell_and_the_others_are_left_alone(team: Ranks) -> None:
    result = team.execute("kept = 10 * rank\nkept", ranks=[2, 0])
    assert result.values == {0: "0", 2: "20"} and result.ranks == (0, 2)
    message = (
        "if rank == 0: dist.send(torch.tensor([7]), 2)\nelse: dist.recv(x := torch.tensor([0]), 0)"
    )
    assert team.execute(f"{message}\nrank and x", ranks=[0, 2]).values[2] == "tensor([7])"
    assert team.execute("'kept' in vars()", ranks=[1]).values == {1: "False"}
    with pytest.raises(wb.SpecError, match=r"ranks = \[3\]: there are 3, numbered 0 to 2"):
        team.execute("rank", ranks=[3])


def test_what_is_printed_comes_by_rank_while_the_cell_runs(team: Ranks, tmp_path: Path) -> None:
    """The ranks go on when the first lines of all have come, or at last without."""
    lines, heard = set[tuple[str, int, str]](), tmp_path / "heard"

    def tell(kind: str, ranks: Sequence[int], text: str) -> None:
        lines.add((kind, ranks[0], text))
        if {("out", rank, f"a {rank}") for rank in range(3)} <= lines:
            heard.touch()

    team.execute(
        f"import time, sys, os\nprint('a', rank)\nend = time.monotonic() + {PATIENCE}\n"
        f"while not os.path.exists({str(heard)!r}) and time.monotonic() < end: time.sleep(0.01)\n"
        "print('b', time.monotonic() < end, file=sys.stderr)\n"
        "os.system('echo from a shell')\nprint('no end', end='')",
        tell=tell,
    )
    for rank in range(3):
        first, second = ("out", rank, f"a {rank}"), ("err", rank, "b True")
        assert {first, second, ("out", rank, "no end"), ("out", rank, "from a shell")} <= lines


def test_a_flood_is_cut_and_counted_and_the_ranks_go_on(team: Ranks) -> None:
    result = team.execute("for _ in range(300): print('x' * 100_000)", ranks=[1])
    assert sum(len(line) for _, _, line in result.printed) < 110_000
    assert "rank 1 printed 29,900,300 characters more than the 100,000" in result.notes[0]
    assert team.execute("print('again')").output(1) == "again\n"


# ---- what goes wrong


def test_what_a_rank_raises_names_the_line_and_the_others_do_not_wait_forever(
    team: Ranks,
) -> None:
    generation = team.generation
    team.execute("kept = rank\ndef f():\n    return 1 / kept", name="cell 40")
    result = team.execute(
        "\nif rank == 0:\n    f()\ndist.all_reduce(torch.ones(2))", name="cell 41"
    )
    raised = result.errors[0]
    assert (raised["kind"], raised["line"]) == ("ZeroDivisionError", 3)
    expected = ['File "cell 41", line 3, in <module>', "f()", 'File "cell 40", line 3, in f']
    assert all(words in raised["text"] for words in expected) and "running.py" not in raised["text"]
    for rank in (1, 2):
        assert result.errors[rank]["text"].startswith("interrupted at line 4: dist.all_reduce")
    notes = "\n".join(result.notes)
    assert "rank 0 raised ZeroDivisionError: rank" in notes
    assert "rank 0 failed: ranks 1, 2 cannot go on, and are interrupted" in notes
    with pytest.raises(
        CellError, match="rank 0 raised; rank 0, line 3: ZeroDivisionError"
    ) as caught:
        result.check()
    assert caught.value.rank == 0 and not result.interrupted
    assert team.generation == generation + 1
    again = team.execute("x = torch.ones(2)\ndist.all_reduce(x)\nkept, x[0].item()")
    assert again.values == {rank: f"({rank}, 3.0)" for rank in range(3)}


def test_a_deadlock_is_explained_within_seconds_and_can_be_interrupted(team: Ranks) -> None:
    team.execute("kept = rank")
    notes: list[tuple[float, str]] = []
    waits = [
        rf"rank {rank} has waited \d+ s for rank {(rank + 1) % 3} in recv, line 4: dist.recv\("
        for rank in range(3)
    ]
    thread = stop_when(team, "deadlock", *waits)
    began = time.monotonic()
    result = team.execute(DEADLOCK, tell=lambda k, r, text: notes.append((time.monotonic(), text)))
    thread.join()
    # On a busy machine one rank may come to its wait long before the others, and is told alone.
    when, words = next(
        (at, text) for at, text in notes if all(re.search(line, text) for line in waits)
    )
    assert when - began < 10 * crowding()
    assert "rank 0 waits for rank 1, which waits for rank 2, which waits for rank 0" in words
    assert result.deadlock == (0, 1, 2)
    still = select(team.store)
    assert still.sentence == (
        "Deadlock: rank 0 waits for rank 1, which waits for rank 2, which waits for rank 0."
    )
    assert svg(still).count("<polygon") == 3, "an arrow from each to the next"
    circle = [{"rank": rank, "peer": (rank + 1) % 3} for rank in range(3)]
    assert circle_of(team.store.metadata) == circle, "live pictures keep it after the cell's end"
    assert result.interrupted and {one["line"] for one in result.errors.values()} == {4}
    with pytest.raises(CellInterrupted, match="the ranks live"):
        result.check()
    values = team.execute("dist.all_reduce(x := torch.ones(1))\nkept, x.item()").values
    assert values == {rank: f"({rank}, 3.0)" for rank in range(3)}
    again = team.execute("import threading\nthreading.Event().wait(1.7)\n")
    assert again.ok and again.notes == []  # the waits are over
    assert select(team.store).deadlock == () and circle_of(team.store.metadata) == []


def test_a_cell_that_only_some_ranks_run_says_so_when_they_wait(team: Ranks) -> None:
    thread = stop_when(team, "takes no part")
    result = team.execute("dist.all_reduce(torch.ones(1))", ranks=[0, 1])
    thread.join()
    assert "rank 2 takes no part in this cell: rank" in "\n".join(result.notes)


def test_a_wait_for_a_rank_that_computes_is_explained_and_goes_on(
    team: Ranks, tmp_path: Path
) -> None:
    """It computes until it is explained."""
    computes, explained = "while not os.path.exists(kept): time.sleep(0.01)", tmp_path / "explained"

    def tell(kind: str, ranks: Sequence[int], text: str) -> None:
        if f"rank 0 is at line 4: {computes}" in text:
            explained.touch()

    team.execute(f"import os, time\nkept = {str(explained)!r}")
    result = team.execute(
        f"import os, time\nx = torch.zeros(1)\nif rank == 0:\n    {computes}\ndist.all_reduce(x)",
        tell=tell,
    )
    assert result.ok and explained.exists()
    assert "deadlock" not in "".join(result.notes)


def test_a_message_that_is_posted_and_awaited_later_is_not_a_hang(
    team: Ranks, tmp_path: Path
) -> None:
    """It is awaited when it has been sent, or busy cores might make that wait a long one."""
    sent = f"os.path.exists({str(tmp_path / 'sent')!r})"
    begun = "import os, time\nx = torch.zeros(1)\nwork = dist.irecv(x, src=0) if rank else None"
    sends = f"    dist.send(x + 5, 1)\n    open({str(tmp_path / 'sent')!r}, 'w').close()"
    takes = f"    while not {sent}: time.sleep(0.01)\n    work.wait()"
    ended = f"if rank == 0:\n{sends}\nelse:\n{takes}\nx.item()"
    result = team.execute(f"{begun}\ntime.sleep(1.8)\n{ended}", ranks=[0, 1])
    assert result.notes == [] and result.values == {0: "0.0", 1: "5.0"}


def test_ranks_that_the_user_holds_do_not_hang(team: Ranks) -> None:
    team.pause()
    threading.Timer(2.0, team.resume).start()
    result = team.execute("dist.all_reduce(x := torch.ones(5))\nx[0].item()")
    assert result.ok and result.notes == [] and result.values[1] == "3.0"


def test_a_rank_that_dies_is_replaced_and_that_is_said(team: Ranks) -> None:
    team.execute("kept = rank")
    before = team.pids
    result = team.execute(
        "import os\nif rank == 1:\n    os._exit(7)\ndist.all_reduce(torch.ones(9))"
    )
    assert result.died == {1: f"(process {before[1]}) exited with code 7"}
    assert {error["kind"] for error in result.errors.values()} == {"PeerLost"}
    assert f"A new process takes its place ({team.pids[1]})" in "".join(result.notes)
    assert {rank for rank in range(3) if team.pids[rank] != before[rank]} == {1}
    values = team.execute("dist.all_reduce(x := torch.ones(1))\n'kept' in vars(), x.item()").values
    assert values == {0: "(True, 3.0)", 1: "(False, 3.0)", 2: "(True, 3.0)"}
    assert gone([before[1]])


def test_a_rank_that_is_killed_between_cells_is_replaced_by_the_next(team: Ranks) -> None:
    pid = team.pids[2]
    os.kill(pid, signal.SIGKILL)
    until(lambda: 2 in team.control_state.ended, 5, "its end is known")
    notes: list[str] = []
    result = team.execute("rank", tell=lambda kind, ranks, text: notes.append(text))
    assert result.values == {0: "0", 1: "1", 2: "2"}
    assert notes[0].startswith(f"rank 2 (process {pid}) was killed by SIGKILL. A new process")


def test_a_rank_that_will_not_be_interrupted_is_killed(
    team: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_module, "GRACE", 0.5)
    code = (
        "import time\nwhile True:\n    try:\n        print('here')\n        time.sleep(9)\n"
        "    except BaseException: pass"
    )

    def stop(kind: str, ranks: Sequence[int], text: str) -> None:
        if text == "here":
            team.stop()

    result = team.execute(code, ranks=[2], tell=stop)
    assert result.interrupted and 2 in result.died
    assert "rank 2 did not end the cell within" in "".join(result.notes)
    assert team.execute("rank").ok


def test_what_is_not_python_is_refused_before_anything_starts(team: Ranks) -> None:
    with pytest.raises(SyntaxError):
        team.execute("print('never')\ndef f(:")
    assert team.execute("2").values[0] == "2"


def test_a_second_cell_does_not_meet_the_first(team: Ranks, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    first = threading.Thread(target=team.execute, args=(waits,))
    first.start()
    until(lambda: team._cell is not None, 5)
    assert team.state_in_words == ("running", "A cell runs on ranks 0-2.")
    with pytest.raises(wb.WorkbenchError, match="run another cell"):
        team.execute("1")
    go.touch()
    first.join()


def test_random_numbers_differ_between_ranks_as_between_processes(team: Ranks) -> None:
    for draws in ("random.random()", "numpy.random.rand()"):
        values = team.execute(f"import random, numpy\n{draws}").values
        assert len(set(values.values())) == 3, draws


# ---- what others see of it


def test_what_ranks_send_is_recorded_as_in_a_run(team: Ranks) -> None:
    rows = len(team.store)
    team.execute("dist.all_reduce(torch.ones(3000))\nx = torch.ones(4)\nother = 1 - rank")
    team.execute("dist.send(x, 1) if rank == 0 else dist.recv(x, 0)", ranks=[0, 1])
    new = team.events[rows:]
    calls = new.filter(pl.col("kind") == "collective")
    assert calls["collective"].to_list() == ["all_reduce"] * 3
    assert set(calls["generation"]) == {team.generation}
    messages = new.filter(pl.col("collective") == "p2p")
    assert sorted(messages["kind"].to_list()) in (["recv", "send"], ["recv", "send", "wait"])
    marks = new.filter(pl.col("name").is_in(["cell", "cell over"]))
    number = team.cells  # of the newest; two ranks ran it
    for name in ("cell", "cell over"):
        told_of = marks.filter(pl.col("name") == name)["value"].to_list()
        assert sorted(told_of) == [number - 1] * 3 + [number] * 2
    run_facts = facts(team.store.metadata)
    assert run_facts["ranks"] == 3 and run_facts["cells"]
    assert run_facts["title"] == "Cells on 3 ranks"
    assert select(team.store).sentence.startswith(f"3 ranks ran {team.cells} cells and sent")
    waiting = select(Store({"cells": "0", "ranks": "3"}))
    assert waiting.sentence == "3 ranks wait for a cell." and not waiting.trains


def test_links_and_kills_of_a_page_work_as_in_a_run(team: Ranks) -> None:
    team.link(0, 1, latency="150 ms")
    began = time.monotonic()
    assert team.execute(
        "dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)", ranks=[0, 1]
    ).ok
    assert time.monotonic() - began > 0.14
    team.link(0, 1, latency="0 ms")
    team.freeze(1)
    until(lambda: is_stopped(team.pids[1]), 5, "it stands still")
    team.thaw(1)
    assert team.execute("rank").ok
    team.kill(0)
    until(lambda: team.control_state.ended, 5, "its end is known")
    assert team.control_state.ended[0].endswith("was killed by SIGKILL")
    assert team.execute("rank").ok and not team.control_state.ended


def test_groups_that_come_and_go_are_all_in_the_record(team: Ranks) -> None:
    rows = len(team.events)
    done = team.execute(
        "for i in range(40):\n"
        "    group = dist.new_group()\n"
        "    dist.all_reduce(torch.ones(3), group=group)\n"
        "    dist.destroy_process_group(group)\n"
        "del group"
    )
    assert done.ok and team.dropped == 0
    sends = team.events[rows:].filter(
        (pl.col("kind") == "collective") & (pl.col("collective") == "all_reduce")
    )
    assert sends.group_by("rank").agg(pl.col("group").n_unique())["group"].to_list() == [40] * 3
