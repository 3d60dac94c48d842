"""The critical path of recorded runs lies on their known faults, and of live ones is there."""

from __future__ import annotations

import polars as pl
import pytest

import workbench as wb
from tests.analysis.critical_path.golden import UNIT, operations, row
from tests.analysis.one_fault import FAULTS, file_of
from tests.live import PATIENCE, lenet, until
from tests.synthetic import table
from workbench.analysis.critical_path.iterations import iterations_of
from workbench.analysis.critical_path.path import CriticalPath, critical_path
from workbench.common.errors import SpecError
from workbench.store.event_store import Store

p = pl.col

# fault -> what most of the path is, in most iterations that have it: kind, ranks, peer
CAUSES = {
    "slow link": ("link", {1}, 2),
    "slow rank": ("compute", {2}, -1),
    "two slow ranks": ("compute", {1, 3}, -1),
    "frozen rank": ("fault", {1}, -1),
    "slow stage": ("compute", {1}, -1),
    "held by the user": ("hold", None, -1),
}


def paths_of(name: str) -> list[CriticalPath]:
    """Return the paths of a recorded run, without its first iteration."""
    store = Store.load(file_of(name))
    known = iterations_of(store.scan(), store.metadata)
    paths = [
        critical_path(store.scan(), store.metadata, one) for one in known.table["iteration"][1:]
    ]
    return [one for one in paths if one is not None]


def whole(path: CriticalPath) -> None:
    """Fail unless each segment begins where the one before it ends, and all are the iteration."""
    starts, ends = path.segments["start_ns"], path.segments["end_ns"]
    assert starts[1:].to_list() == ends[:-1].to_list()
    assert path.segments["share"].sum() == pytest.approx(1)
    assert path.causes["ms"].sum() == pytest.approx(path.ms)
    assert path.slack.height == 0 or path.slack["slack_ns"].min() >= 0  # type: ignore[operator]
    assert "unseen" not in path.words and path.words in path._repr_html_()


@pytest.mark.parametrize("name", FAULTS)
def test_the_path_is_as_long_as_its_iteration(name: str) -> None:
    for path in paths_of(name):
        whole(path)
        assert path.unseen == ()


@pytest.mark.parametrize("name", CAUSES)
def test_the_path_lies_on_the_fault(name: str) -> None:
    case, (kind, ranks, peer) = FAULTS[name], CAUSES[name]
    paths = [one for one in paths_of(name) if one.iteration >= case.begins]
    if kind in ("fault", "hold"):  # once
        paths = [max(paths, key=lambda one: one.ms)]
    first = [one.causes.row(0, named=True) for one in paths]
    on_it = [
        one
        for one in first
        if (one["kind"], one["peer"]) == (kind, peer)
        and (ranks is None or one["rank"] in ranks)
        and one["share"] > 0.5
    ]
    assert len(on_it) > 0.7 * len(first), first


def test_bytes_of_narrow_links_and_of_a_hot_server_are_on_it() -> None:
    for name in ("bandwidth", "hot server"):
        shares = [
            one.segments.filter(p("kind").is_in(["link", "send"]))["share"].sum()
            for one in paths_of(name)
        ]
        assert sorted(shares)[len(shares) // 2] > 0.5, shares
    links = paths_of("hot server")[-1].segments.filter(kind="link")
    assert (links["rank"].is_in([0]) | links["peer"].is_in([0])).all(), "to and from the server"


def test_a_rank_late_in_its_backward_pass_is_named_although_all_have_the_same() -> None:
    """All rows of backward are as long, since they hold the call: rank 1 computes 5 of it, the
    others 3 and then wait for it.
    """
    rows = []
    call = {"collective": "all_reduce", "group": "default", "op": 0, "lane": "comm"}
    for rank in range(3):
        rows.append(row(rank, "backward", 0, 7))
        rows.append(row(rank, "collective", 5 if rank == 1 else 3, 6, **call))
    path = critical_path(table(rows), {"ok": "True"}, 1)
    assert path is not None
    on_it = {(one, kind): ms for kind, one, ms in path.causes.select("kind", "rank", "ms").rows()}
    assert on_it[1, "compute"] >= 5 and path.ms == 7
    slack = path.slack.filter(kind="backward", rank=0)["slack_ns"].to_list()
    assert 2 * UNIT in slack


def test_calls_that_are_all_that_is_known_of_a_job_name_the_rank_that_came_last() -> None:
    """An observed job: no message and no pass is recorded, and iterations are counted."""
    rows = [one for one in operations() if one["kind"] != "forward"]
    rows += [{**one, "iteration": 0} for one in rows if one["kind"] == "optimizer"]
    for one in rows:
        if one["kind"] == "optimizer":
            at = 7 * UNIT if one["iteration"] else 0
            one["start_ns"], one["end_ns"] = at, at + 1
    path = critical_path(table(rows), {"ok": "True"}, 1)
    assert path is not None and not path.computes
    assert path.causes["cause"][0] == "rank 0 between its calls"
    assert path.causes["ms"][0] == pytest.approx(5, rel=1e-3)


def test_a_job_whose_computing_was_not_recorded_says_so() -> None:
    rows = [{**one, "iteration": -1} for one in operations() if one["kind"] == "collective"]
    path = critical_path(table(rows), {})
    assert path is not None and path.iteration == -1
    assert path.unseen == ("Computing was not recorded: what ranks do between calls is in no row.",)
    assert path.words == (
        "The record took 4 ms. Of its critical path, 50% is calls on rank 1 and 50% is rank 0 "
        "between its calls."
    )


def test_lost_rows_are_said() -> None:
    store = Store.load(file_of("slow link"))
    events = store.scan().collect()
    sends = events.with_row_index().filter(p("kind").cast(pl.String) == "send", iteration=3)
    rest = events.with_row_index().join(sends[::4], on="index", how="anti").drop("index")
    path = critical_path(rest, store.metadata, 3, dropped=7)
    assert path is not None
    whole_words = " ".join(path.unseen)
    assert "7 rows of the run were lost" in whole_words and "was not recorded" in whole_words


def test_iterations_that_are_not_finished_are_refused() -> None:
    run = Store.load(file_of("slow link"))
    with pytest.raises(SpecError, match="Those from 0 to 4 are"):
        critical_path(run.scan(), run.metadata, 5)
    unfinished = {key: text for key, text in run.metadata.items() if key != "ok"}
    path = critical_path(run.scan(), unfinished)
    assert path is not None and path.iteration == 3
    assert critical_path(run.scan().filter(p("iteration") < 0), unfinished) is None


def test_a_live_run_has_one_and_a_saved_one_the_same(tmp_path: object) -> None:
    run = wb.run(lenet(ranks=2, iterations=8, pad_compute="20 ms"))
    until(lambda: run.done or run.critical_path() is not None, PATIENCE)
    live = run.critical_path()
    assert live is not None and live.iteration >= 0
    run.wait(timeout=PATIENCE)
    path = run.critical_path()
    assert path is not None and path.iteration == 7
    whole(path)
    file = f"{tmp_path}/run.parquet"
    run.store.save(file)
    again = wb.load(file).critical_path()
    assert again is not None and again.segments.equals(path.segments)
