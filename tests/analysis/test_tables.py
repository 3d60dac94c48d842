"""The tables of a run: bytes, calls, waits and queue, of events whose numbers are known."""

from __future__ import annotations

import polars as pl
import pytest

import workbench as wb
from tests.synthetic import loss_row, table, training
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store

MS = 1_000_000


def loaded(events: pl.DataFrame) -> Loaded:
    return Loaded(Store.from_frame(events))


def event(kind: str, rank: int, peer: int, start: float, end: float, **more: object) -> object:
    """An event of a worker (1, 2) or of a server (0); times in ms."""
    times = {"start_ns": int(start * MS), "end_ns": int(end * MS)}
    named = {"kind": kind, "rank": rank, "peer": peer, "name": "", "value": 0.0, "iteration": 0}
    return loss_row(0, 0, 0.0) | named | times | more


def push(worker: int, start: float, sent: float, begun: float, done: float) -> list[object]:
    """Return the rows of a push: it is sent until ``sent``, and the update ends at ``done``."""
    moved = {"group": "default", "collective": "p2p", "nbytes": 100}
    return [
        event("push", worker, 0, start, sent + 0.1, nbytes=100),
        event("send", worker, 0, start, sent, lane="send", **moved),
        event("recv", 0, worker, start + 0.1, sent, lane="recv", **moved),
        event("apply", 0, worker, begun, done, lane="server"),
    ]


@pytest.fixture(scope="module")
def served() -> Loaded:
    """Worker 1's update runs from 5 to 9 ms; worker 2's push has been sent by 6 and waits for it.
    Worker 1 waits 3 ms for its next grant.
    """
    rows = [event("load", 1, -1, 0, 1), *push(1, 2, 5, 5, 9), *push(2, 3, 6, 9, 11)]
    rows.append(event("wait", 1, 0, 9, 12, lane="recv:control", group="control"))
    rows.append(event("send", 0, 1, 9, 9.1, lane="send:control", group="control", nbytes=16))
    rows.append(event("wait", 0, 2, 5, 6, lane="recv", group="default", collective="p2p"))
    return loaded(table(rows))  # type: ignore[arg-type]


def test_bytes_are_those_of_training_by_rank_and_iteration() -> None:
    run, nbytes = loaded(training(3)), 246_824
    whole, one = run.bytes(), run.bytes(iteration=1)
    assert whole["sent"].sum() == 3 * 2 * 3 * nbytes == 3 * one["sent"].sum()
    assert whole["through"].to_list() == (whole["sent"] + whole["received"]).to_list()
    assert one["messages"].to_list() == [6] * 4  # 2 (p - 1)
    assert run.bytes(iteration=9).height == 0


def test_metrics_are_the_values_of_one_name_by_time() -> None:
    rows = [event("metric", 1, -1, 3, 3, name="frames", value=8.0, iteration=2)]
    rows += [event("metric", 0, -1, 1, 1, name="frames", value=4.0), event("load", 0, -1, 0, 1)]
    run = loaded(table([*rows, event("metric", 0, -1, 2, 2, name="loss", value=9.0)]))  # type: ignore[list-item]
    frames = run.metrics("frames")
    assert frames.columns == ["rank", "iteration", "generation", "at_ms", "value"]
    assert frames.select("rank", "iteration", "at_ms", "value").rows() == [
        (0, 0, 1, 4),
        (1, 2, 3, 8),
    ]
    assert run.metrics("none").height == 0


def test_grants_are_not_bytes_of_training(served: Loaded) -> None:
    assert served.bytes().rows() == [(0, 0, 200, 200, 0), (1, 100, 0, 100, 1), (2, 100, 0, 100, 1)]


def test_a_call_lasts_from_the_first_start_to_the_last_end() -> None:
    run = loaded(training(3))
    events = run.events.filter(kind="collective", iteration=1)
    first, last, late = events["start_ns"].min(), events["end_ns"].max(), events["start_ns"].max()
    assert isinstance(first, int) and isinstance(last, int) and isinstance(late, int)
    assert run.calls().height == 3
    (call,) = run.calls(iteration=1).rows(named=True)
    assert call["took_ms"] == pytest.approx((last - first) / MS)
    assert call["together_ms"] == pytest.approx((last - late) / MS)
    assert call["start_ms"] == pytest.approx((first - run.events["start_ns"].min()) / MS)  # type: ignore[operator]
    named = ("ranks", "nbytes", "collective", "algorithm", "name")
    assert [call[name] for name in named] == [4, 246_824, "all_reduce", "ring", "gradients"]


def test_a_ranks_part_of_a_call_and_the_waits_add_up() -> None:
    run = loaded(training(3))
    parts, waits = run.calls(by_rank=True), run.waits()
    assert parts.height == 12
    assert (parts["waited_ms"] <= parts["took_ms"]).all()
    by_rank = parts.group_by("rank").agg(pl.sum("waited_ms")).sort("rank")["waited_ms"]
    assert by_rank.to_list() == pytest.approx(waits.sort("rank")["waited_ms"].to_list())
    assert waits.select("rank", "peer").rows() == [(0, 3), (1, 0), (2, 1), (3, 2)]
    assert run.waits(iteration=1)["waits"].sum() < waits["waits"].sum()


def test_a_wait_is_for_a_grant_or_for_a_message(served: Loaded) -> None:
    rows = [(0, 2, "message", 1, 1.0, 1.0, None), (1, 0, "grant", 1, 3.0, 3.0, None)]
    assert served.waits().rows() == rows


def test_a_push_waits_in_the_queue_while_anothers_update_runs(served: Loaded) -> None:
    columns = ["server", "worker", "arrived_ms", "waited_ms", "update_ms", "end_ms", "blockers"]
    rows = served.queue().select(columns).rows()
    assert rows == [(0, 1, 5.0, 0.0, 4.0, 9.0, []), (0, 2, 6.0, 3.0, 2.0, 11.0, [1])]


def test_what_there_is_not_is_an_empty_table(served: Loaded) -> None:
    assert served.calls().height == served.calls(by_rank=True).height == 0
    assert loaded(training(1)).queue().height == 0
    assert loaded(training(1).clear()).bytes().height == 0


def test_an_iteration_that_is_none_is_refused(served: Loaded) -> None:
    with pytest.raises(wb.SpecError, match=r"Loaded.waits: iteration = -1: must be a whole number"):
        served.waits(iteration=-1)


def test_iterations_last_until_the_next_begins_and_servers_have_none(served: Loaded) -> None:
    rows = [event("load", 1, -1, 2, 3), event("forward", 1, -1, 3, 6), event("push", 1, 0, 6, 9)]
    rows += [
        event("load", 1, -1, 12, 13, iteration=1),
        event("backward", 1, -1, 13, 15, iteration=1),
    ]
    rows += [event("apply", 0, 1, 9, 10), event("load", 2, -1, 4, 8)]
    each = loaded(table(rows)).iterations()  # type: ignore[arg-type]
    assert each.columns == ["rank", "iteration", "start_ms", "took_ms", "computing_ms"]
    assert each.rows() == [
        (1, 0, 0.0, 10.0, pytest.approx(4)),
        (1, 1, 10.0, None, pytest.approx(3)),
        (2, 0, 2.0, None, pytest.approx(4)),
    ]
    assert served.iterations()["rank"].to_list() == [1]


def test_bytes_by_peer_say_what_went_to_which_rank(served: Loaded) -> None:
    rows = served.bytes(by_peer=True).rows()
    assert rows == [(1, 0, "message", "default", 100, 1), (2, 0, "message", "default", 100, 1)]
    ring = loaded(training(3))
    by_peer = ring.bytes(iteration=1, by_peer=True)
    assert by_peer["peer"].to_list() == [1, 2, 3, 0], "each to its right neighbor"
    assert set(by_peer["what"]) == {"all_reduce"}
    assert by_peer["sent"].to_list() == ring.bytes(iteration=1)["sent"].to_list()
