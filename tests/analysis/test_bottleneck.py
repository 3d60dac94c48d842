"""The bottleneck of runs whose cause is known: what cost most, and whose doing it was.

The machine's own cores may cost more than anything else, so a cause counts as found when it is
named first, or right after the cores.
"""

from __future__ import annotations

import time
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, PATIENCE, lenet, training, until
from tests.synthetic import table
from workbench.analysis.bottleneck import Bottleneck, find
from workbench.analysis.time_spent import PARTS, TimeSpent, rows_of
from workbench.front_end.assets import asset
from workbench.store.holds import holds_of, note_hold
from workbench.store.table import EMPTY, SCHEMA

MS = 1_000_000


def first_cause(exp: wb.Experiment) -> Bottleneck:
    """Return the first cause of a real run that is not the cores of this machine."""
    run = wb.run(exp)
    run.wait(timeout=PATIENCE)
    result = run.bottleneck()
    assert result is not None
    assert sum(result.shares.values()) == pytest.approx(1)
    page = result.for_page()
    assert page["words"].endswith(".") and page["advice"].endswith(".")
    if result.cause == "cores":
        assert result.also is not None, result
        return result.also
    return result


def test_a_slow_link_is_named_although_others_wait_behind_it() -> None:
    slow = wb.Network(links={(0, 1): wb.Link(latency="40 ms")})
    result = first_cause(lenet(ranks=3, iterations=5, network=slow))
    assert (result.cause, result.rank, result.peer) == ("slow link", 0, 1), result


@pytest.mark.full
def test_a_straggler_is_named_although_others_wait_for_ranks_that_wait_for_it() -> None:
    slow = (wb.Slow(rank=2, factor=10),)
    result = first_cause(lenet(ranks=4, iterations=6, pad_compute="15 ms", faults=slow))
    assert (result.cause, result.rank) == ("straggler", 2), result


def test_small_buckets_cost_latency() -> None:
    small = {"bucket_cap_mb": 0.0001}
    exp = lenet(strategy="ddp", network=wb.Network(latency="10 ms"), iterations=4, options=small)
    assert first_cause(exp).cause == "latency"


@pytest.mark.full
def test_large_messages_over_narrow_links_cost_bandwidth() -> None:
    exp = lenet(network=wb.Network(bandwidth="20 Mbit/s"), iterations=4)
    assert first_cause(exp).cause == "bandwidth"


@pytest.mark.full
def test_a_hot_server_is_named() -> None:
    exp = lenet(
        strategy="parameter_server",
        ranks=5,
        iterations=6,
        network=wb.Network(bandwidth="20 Mbit/s"),
        options={"consistency": "asp"},
    )
    result = first_cause(exp)
    assert (result.cause, result.rank) == ("server", 0), result


@pytest.mark.full
def test_the_bubble_of_a_pipeline_is_not_a_straggler() -> None:
    exp = wb.Experiment(
        strategy="pipeline",
        task="char_transformer",
        ranks=4,
        threads=1,
        iterations=4,
        batch_size=8,
        pad_compute="60 ms",
        options={"schedule": "gpipe", "microbatches": 2},
    )
    assert first_cause(exp).cause == "bubble"


# ---- by hand: no clock of this machine

NOTHING = {
    name: "" if dtype in (pl.String, pl.Categorical) else float("nan") if dtype.is_float() else -1
    for name, dtype in SCHEMA.items()
}


def span(rank: int, kind: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    times = {"start_ns": int(start * MS), "end_ns": int(end * MS)}
    return {**NOTHING, "rank": rank, "kind": kind, "iteration": 1, **times, **more}


def message(rank: int, kind: str, peer: int, start: float, end: float) -> dict[str, Any]:
    key = {"group": "default", "op": 0, "step": 0, "chunk": rank if kind == "send" else peer}
    return span(rank, kind, start, end, peer=peer, slot=0, nbytes=1000, **key)


def test_ranks_that_share_cores() -> None:
    rows = [span(rank, "forward", 0, 100, value=70.0 * MS) for rank in range(4)]
    result = find(table(rows), {"cores": "2"})
    assert result is not None and result.cause == "cores"
    assert result.shares["core"] == pytest.approx(0.7)
    assert "4 ranks run on 2 cores" in result.words


def test_what_a_rank_waits_for_is_followed_from_peer_to_peer() -> None:
    """Rank 2 waits for 1, which waits for 0, which computes for 60 ms; its message takes 10 ms."""
    rows = [
        span(0, "forward", 0, 60),
        span(1, "forward", 0, 10),
        span(2, "forward", 0, 10),
        message(0, "send", 1, 60, 70),
        message(1, "wait", 0, 10, 70),
        message(1, "send", 2, 70, 71),
        message(2, "wait", 1, 10, 71),
    ]
    spent = TimeSpent(rows_of(table(rows).lazy()))
    assert dict(spent.waits) == {0: pytest.approx(100 * MS)}
    assert spent.links[0, 1] == pytest.approx(30 * MS)  # the sender's, and two that wait for it
    assert spent.links[1, 2] == pytest.approx(2 * MS)
    assert spent.parts["compute"] == pytest.approx(80 * MS)
    assert sum(spent.parts.values()) == pytest.approx((70 + 71 + 71) * MS)


def test_waiting_for_a_rank_that_is_frozen_is_waiting_for_it_whatever_it_was_in() -> None:
    """Stop it when what it waits for has left: nothing is on its way to the others."""
    rows = [span(rank, "forward", 0, 10) for rank in range(4)]
    rows += [message(0, "send", 1, 10, 11), message(1, "wait", 0, 10, 90)]
    for rank in (1, 2, 3):
        after = (rank + 1) % 4
        rows += [message(rank, "send", after, 89 + rank, 90 + rank)]
        rows += [message(after, "wait", rank, 11, 90 + rank)]
    at = {
        name: {"start_ns": ms * MS, "end_ns": ms * MS}
        for name, ms in (("freeze", 12), ("thaw", 88))
    }
    fault = {**NOTHING, "kind": "fault", "peer": 1}
    frozen = [{**fault, "name": name, **when} for name, when in at.items()]
    before, result = find(table(rows), {}), find(table(rows + frozen), {})
    assert before is not None and before.cause != "straggler"
    assert result is not None and (result.cause, result.rank) == ("straggler", 1), result
    assert "for rank 1" in result.words and "frozen for 0.076 s" in result.words
    assert result.shares["wait"] > 0.5 and result.shares["link"] < 0.1


def test_ranks_that_wait_in_a_circle_are_nobodys_fault() -> None:
    rows = [span(rank, "forward", 0, 10) for rank in (0, 1)]
    rows += [message(0, "wait", 1, 10, 50), message(1, "wait", 0, 10, 50)]
    spent = TimeSpent(rows_of(table(rows).lazy()))
    assert sum(spent.waits.values()) == pytest.approx(80 * MS)
    assert spent.parts["link"] == 0


def test_time_in_which_a_reader_held_the_ranks_is_nobodys() -> None:
    """Whatever it cut in two: a wait of 90 ms of which 60 were held is one of 30."""
    rows = [span(0, "forward", 0, 10), span(1, "forward", 0, 10), span(0, "backward", 70, 100)]
    rows += [message(1, "wait", 0, 10, 100), message(0, "send", 1, 100, 110)]
    whole = TimeSpent(rows_of(table(rows).lazy()))
    start = whole.spans[0][0]
    facts: dict[str, str] = {}
    for held, ms in ((True, 10), (True, 12), (False, 70), (False, 72)):
        note_hold(facts, held, start + ms * MS)
    spent = TimeSpent(rows_of(table(rows).lazy()), facts)
    assert sum(whole.parts.values()) - sum(spent.parts.values()) == pytest.approx(120 * MS)
    assert spent.parts["wait"] == pytest.approx(30 * MS)
    assert spent.parts["compute"] == whole.parts["compute"]
    open_end: dict[str, str] = {}
    note_hold(open_end, True, start + 100 * MS)
    assert holds_of(open_end, start + 110 * MS) == [(start + 100 * MS, start + 110 * MS)]
    assert holds_of({"holds": "[[3], 4]"}, 9) == []


def test_a_run_that_was_held_spent_no_time_on_it() -> None:
    run = training(wb.run(lenet(ranks=2, iterations=LONG, pad_compute="10 ms")))
    run.pause()
    time.sleep(3)
    run.resume()
    held = run.iteration
    until(lambda: run.iteration > held + 2)
    run.stop()
    run.wait(timeout=PATIENCE)
    (hold,) = holds_of(run.store.metadata, 0)
    assert (hold[1] - hold[0]) / 1e9 >= 3.0
    spent = TimeSpent(rows_of(run.store.scan()), run.store.metadata)
    begin, end = spent.spans[0]
    assert sum(spent.parts.values()) < 2 * (end - begin - 2.9e9)


def test_what_computing_hides_costs_nothing() -> None:
    rows = [span(0, "backward", 0, 50), span(1, "backward", 0, 50)]
    rows += [message(0, "send", 1, 10, 40), message(1, "wait", 0, 5, 40)]
    result = find(table(rows), {})
    assert result is not None and result.cause == "compute"
    assert result.shares["compute"] == pytest.approx(1)


@pytest.mark.parametrize("ranks", [0, 1])
def test_nothing_is_said_of_less_than_two_ranks(ranks: int) -> None:
    rows = [span(rank, "forward", 0, 10) for rank in range(ranks)]
    assert find(table(rows) if rows else EMPTY, {}) is None


def test_the_parts_are_those_of_pages() -> None:
    text = asset("chrome/bottleneck.js").read_text()
    assert [part for part in PARTS if f'["{part}", ' not in text] == []
