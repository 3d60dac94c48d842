"""Four hosts that are network namespaces: 8 ranks, and 24 (`make test-launchers`)."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.launchers.test_cut_off import whole
from tests.launchers.test_other_launchers import left_over
from tests.launchers.test_other_launchers import mark as mark
from tests.live import until
from tools.benchmarks import hosts
from workbench import laws

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(hosts.missing()), reason=f"not run here: {hosts.missing()}"),
]


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param(8, marks=pytest.mark.full),
        pytest.param(24, marks=pytest.mark.cluster),
        pytest.param(64, marks=pytest.mark.benchmark),  # two cores: often one is lost
    ],
)
def test_all_rows_of_all_ranks_arrive_and_nothing_is_left(ranks: int, mark: str) -> None:
    """However slowly they start: the driver answers each while the others are on their way."""
    exp = wb.Experiment(
        task="mlp_layers",
        task_options={"layers": 1, "width": 32},
        ranks=ranks,
        iterations=2,
        batch_size=ranks,
        threads=1,
        all_reduce="hierarchical",
        timeout="300 s",
        launcher=f"{hosts.__file__}:OnFour",
    )
    with hosts.namespaces(hosts=4, mbit=1000, delay=0.0002):
        run = wb.run(exp)
        result = run.wait(500, check=False)
    assert result.ok and len(result.losses) == 2, result.error
    events = run.events
    assert run.dropped == 0 and whole(events) and laws.check_events(events) == []
    assert set(events["rank"]) >= set(range(ranks))
    until(lambda: not left_over(mark), 2)
