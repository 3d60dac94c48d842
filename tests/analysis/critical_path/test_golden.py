"""The critical path and re-timing of graphs whose answers are known, to the nanosecond."""

from __future__ import annotations

import pytest

from tests.analysis.critical_path.golden import (
    Rows,
    buckets,
    built,
    changed,
    length,
    operations,
    pipeline,
    ring,
    server,
    two_ranks,
)
from workbench.analysis.critical_path.dependencies import Dependencies

KINDS = ("order", "message", "slots", "bucket", "microbatch", "consumer", "meeting")


def test_two_ranks_that_exchange() -> None:
    """The path is 6, rank 1 may take 2 longer, and rank 0 faster by 3 gains 2."""
    graph = built(two_ranks(), latency=1)
    assert length(graph) == 6
    times, _ = graph.moments.earliest()
    latest = graph.moments.latest(times, [moment for _, moment in graph.ends[1]])
    ((arc,), *_) = graph.computes[1]
    target = graph.moments.arcs[arc].target
    assert latest[target] - times[target] == 2_000_000
    assert changed(graph, 1, compute={1: 5 / 3}) == 6
    assert changed(graph, 1, compute={0: 2 / 5}) == 4


def test_a_pipeline_of_two_stages() -> None:
    graph = built(pipeline())
    assert length(graph) == 6
    assert changed(graph, compute={1: 2}) == 10


@pytest.mark.parametrize(
    ("ranks", "slots", "latency", "occupied"), [(4, 99, 26, 66), (8, 99, 34, 154), (8, 4, 45, 154)]
)
def test_a_ring_with_one_hop_that_takes_ten_more(
    ranks: int, slots: int, latency: float, occupied: float
) -> None:
    """As latency it counts as often as the longest chain crosses it, as occupancy each time."""
    graph = built(ring(ranks), latency=1, slots=slots)
    assert length(graph) == 2 * (ranks - 1)
    assert changed(graph, 1, {(1, 2): (11, 0)}) == latency
    assert changed(graph, 1, {(1, 2): (0, 11)}) == occupied


def test_a_bucket_that_is_exchanged_beside_backward() -> None:
    """Its exchange begins when it is full, in the midst of backward, and delays the optimizer."""
    graph = built(buckets(), latency=5)
    assert length(graph) == 9
    assert changed(graph, 5, compute={0: 1.5}) == 6 + 5
    assert changed(graph, 5, compute={0: 3}) == 18
    assert changed(graph, 5, {(0, 1): (9, 0)}) == 4 + 9
    assert changed(graph, 5, {(0, 1): (0, 0), (1, 0): (0, 0)}) == 6


def test_a_server_that_answers() -> None:
    graph = built(server())
    assert length(graph) == 5
    assert changed(graph, compute={0: 3}) == 7
    assert changed(graph, links={(0, 1): (4, 0)}) == 9


def test_a_call_without_messages_ends_after_the_last_has_come() -> None:
    graph = built(operations())
    assert length(graph) == 7
    assert changed(graph, compute={1: 5 / 3}) == 7
    assert changed(graph, compute={1: 2}) == 8
    assert changed(graph, compute={0: 1 / 5}) == 5


def answers(without: tuple[str, ...]) -> list[float]:
    """Return the goldens where kinds of dependency are left out."""

    def partial(rows: Rows, latency: float = 0, slots: int = 99) -> Dependencies:
        return built(rows, latency, slots, without=without)

    two, of_four, of_eight = partial(two_ranks(), 1), partial(ring(4), 1), partial(ring(8), 1, 4)
    return [
        changed(two, 1, compute={0: 2}),
        changed(two, 1, compute={0: 2 / 5}),
        changed(partial(pipeline()), compute={1: 2}),
        changed(partial(buckets(), 5), 5, compute={0: 1.5}),
        changed(partial(buckets(), 5), 5, {(0, 1): (9, 0)}),
        changed(of_four, 1, {(1, 2): (11, 0)}),
        changed(of_four, 1, {(1, 2): (0, 11)}),
        changed(of_eight, 1, {(1, 2): (11, 0)}),
        changed(partial(server()), compute={0: 3}),
        changed(partial(operations()), compute={1: 2}),
    ]


def test_each_kind_of_dependency_is_needed() -> None:
    whole = answers(())
    assert whole == [11, 4, 10, 11, 13, 26, 66, 45, 7, 8]
    for kind in KINDS:
        assert answers((kind,)) != whole, kind
