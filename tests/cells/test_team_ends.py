"""Ranks that run cells: how they begin, bare ones too, and that none outlives its team."""

from __future__ import annotations

import time

import pytest

import workbench as wb
from tests.cells.test_team import stop_when
from tests.live import PATIENCE, gone, script, until


def test_bare_ranks_make_their_group_themselves_with_the_usual_four_lines() -> None:
    team = wb.ranks(2, bare=True)
    assert team.execute("dist.is_initialized()").values[0] == "False"
    begin = (
        "dist.init_process_group('workbench')\nx = torch.ones(2)\ndist.all_reduce(x)\nx[0].item()"
    )
    for _ in range(2):
        assert team.execute(begin).values == {0: "2.0", 1: "2.0"}
        assert team.execute("dist.destroy_process_group()").ok
    failed = team.execute(f"{begin}\n1 / rank")
    assert (
        failed.errors[0]["kind"] == "ZeroDivisionError" and "make yours again" in failed.notes[-1]
    )
    assert team.execute(begin).values[1] == "2.0"  # what was left of the group is gone
    assert team.execute("dist.destroy_process_group()").ok
    assert team.execute(begin.replace("workbench", "gloo")).values == {0: "2.0", 1: "2.0"}
    assert team.execute("dist.destroy_process_group()").ok
    lone = "dist.init_process_group('gloo', rank=0, world_size=1)"
    assert team.execute(lone, ranks=[0]).ok
    for _ in range(4):
        assert team.execute(f"{lone}\ndist.destroy_process_group()", ranks=[1]).ok
    assert len(team._stores) <= 3  # that of the group that lives, and the newest
    assert team.execute("dist.new_group([0])\ndist.destroy_process_group()", ranks=[0]).ok
    stop_when(team, "init_process_group")
    alone = team.execute("dist.init_process_group('workbench')", ranks=[1])
    assert alone.notes[0].startswith("rank 1 has waited 1 s in init_process_group, line 1: dist.in")
    team.close()


def test_the_end_takes_all_processes_along() -> None:
    team = wb.ranks(2)
    calls: list[str] = []
    team.at_end(lambda: calls.append("end"))
    pids = [*team.pids.values()]
    team.close()
    team.close()
    assert gone(pids) and calls == ["end"] and team.done
    assert team.state_in_words[0] == "finished" and repr(team) == "Ranks(2, ended)"
    with pytest.raises(wb.WorkbenchError, match="have ended"):
        team.execute("1")


@pytest.mark.full
def test_a_driver_that_is_killed_leaves_no_rank(tmp_path) -> None:
    process = script(
        tmp_path / "driver.py",
        "import os, signal, workbench as wb\nteam = wb.ranks(2)\n"
        "print(*team.pids.values(), flush=True)\nteam.execute('while True: pass')",
    )
    pids = [*map(int, process.stdout.readline().split())]
    time.sleep(0.3)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert len(pids) == 2
    until(lambda: gone(pids), 5, "the ranks are gone")


@pytest.mark.parametrize("size", [0, 65, 2.5, True])
def test_so_many_ranks_there_cannot_be(size: object) -> None:
    with pytest.raises(wb.SpecError, match="must be a whole number from 1 to 64"):
        wb.ranks(size)


def test_the_web_app_is_refused() -> None:
    from bokeh.document import Document
    from panel.io.state import set_curdoc

    document = Document()
    document._session_context = lambda: "a session"
    refused = pytest.raises(wb.WorkbenchError, match="use a notebook")
    with set_curdoc(document), refused:
        wb.ranks(2)
