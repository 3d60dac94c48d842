"""What became of each gradient, and which rank held which version when: events whose numbers are
known.
"""

from __future__ import annotations

import pytest

from tests.analysis.test_tables import event, loaded
from tests.synthetic import table, training
from workbench.runs.loaded import Loaded


def metric(name: str, rank: int, peer: int, at: float, value: float, **more: object) -> object:
    return event("metric", rank, peer, at, at, name=name, value=value, **more)


@pytest.fixture(scope="module")
def run() -> Loaded:
    """Worker 1 pulls version 0 at 1 ms, and its gradient makes version 1 at 9. Worker 2 pulls
    version 0 at 2 ms; its first gradient comes at 12 ms and has missed one update, its second one
    is dropped at 20 ms. It pulls version 2 at 13 ms and computes from 14 to 18.
    """
    rows = [
        event("pull", 1, 0, 0, 1, version=0),
        event("pull", 2, 0, 1, 2, version=0),
        event("apply", 0, 1, 8, 9, version=1, value=0.0),
        event("apply", 0, 2, 11, 12, version=2, value=1.0),
        event("pull", 2, 0, 12.5, 13, version=2, iteration=1),
        event("forward", 2, -1, 14, 18, version=2, iteration=1),
        metric("dropped", 0, 2, 20, 8.0, version=2, iteration=1),
        metric("samples", 1, -1, 5, 24.0),
        metric("loss", 1, -1, 5, 0.5),
        metric("samples", 2, -1, 5, 8.0),
        metric("samples", 2, -1, 17, 8.0, iteration=1),
    ]
    return loaded(table(rows))  # type: ignore[arg-type]


def test_each_gradient_is_applied_or_dropped(run: Loaded) -> None:
    assert run.gradients().rows() == [
        (0, 1, 0, 9.0, 0, False, 24, 0.5, 1),
        (0, 2, 0, 12.0, 1, False, 8, None, 2),
        (0, 2, 1, 20.0, None, True, 8, None, 2),
    ]


def test_a_worker_holds_what_it_pulled_last(run: Loaded) -> None:
    assert run.versions(5).rows() == [(1, 0, 0, 1.0, None), (2, 0, 0, 2.0, None)]
    assert run.versions(12.2).rows() == [(1, 0, 2, 1.0, None), (2, 0, 2, 2.0, None)]
    assert run.versions(15).rows() == [(1, 0, 2, 1.0, None), (2, 2, 0, 13.0, "forward")]
    assert run.versions().select("rank", "version", "behind").rows() == [(1, 0, 2), (2, 2, 0)]


def test_without_a_server_there_are_none() -> None:
    ring = loaded(training(2))
    assert ring.gradients().height == ring.versions().height == 0
