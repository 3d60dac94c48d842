"""Reports whose job fails, hangs or waits: the record says so, as the live page does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import crowding
from tests.pairwise import first
from tests.public_reports.attached import (
    END_FROM_OUTSIDE,
    ENGINE,
    OPERATIONS,
    attached,
    line_of,
    record,
)
from workbench.runs.loaded import Loaded
from workbench.views.pages.facts import state_of
from workbench.views.pages.feed import Feed

CIRCLE = (
    END_FROM_OUTSIDE.format(seconds=3)
    + """
pairs = {name: dist.new_group(of) for name, of in [("A", [0, 1]), ("B", [1, 2]), ("C", [0, 2])]}
for name in {0: "AC", 1: "BA", 2: "CB"}[me]:  # 26: each walks its groups in another order
    dist.all_reduce(torch.ones(1), group=pairs[name])
"""
)


def page_of(job: Loaded) -> dict[str, Any]:
    """Return what a saved page is told of the job beside its rows."""
    headers: list[dict[str, Any]] = []
    Feed(job).tell_all(job, lambda message: headers.append(message.header))
    return headers[-1]


def test_a_circle_over_groups_is_kept_hop_by_hop_after_the_ranks_were_killed(
    tmp_path: Path,
) -> None:
    ended = attached(tmp_path, 3, CIRCLE)
    assert any(one.code == -9 for one in ended)
    job, place = wb.load(tmp_path), f"(script.py:{line_of(CIRCLE, 'group=pairs')})"
    failure = job.failure
    assert failure is not None
    hops = [
        f"0 waits for 1 in all_reduce 1 of [0, 1] {place}",
        f"1 for 2 in all_reduce 1 of [1, 2] {place}",
        f"2 for 0 in all_reduce 1 of [0, 2] {place}: a circle",
    ]
    assert all(hop in failure["text"] for hop in hops), failure["text"]
    assert "noticed" not in failure["text"] and "ended from outside" in failure["text"]
    waits = job.waits()
    assert waits.select("rank", "peer", "what").rows() == [
        (0, 1, "all_reduce"),
        (1, 2, "all_reduce"),
        (2, 0, "all_reduce"),
    ]
    assert waits["waited_ms"].min() > 1000  # type: ignore[operator]
    assert job.calls()["completed"].to_list() == [False] * 3
    page = page_of(job)
    assert page["state"] == "failed" and hops[0] in page["words"]
    assert page["run"]["waiting"] == [{"rank": r, "peer": (r + 1) % 3} for r in range(3)]


RAISES = """
    x = torch.ones(4)
    dist.all_reduce(x)
    if me == 1:
        raise ValueError("nan in the data")
    dist.all_reduce(x)
"""


def test_a_failed_jobs_record_says_which_rank_failed_and_how(tmp_path: Path) -> None:
    job = record(tmp_path / "trace", 2, RAISES, fails=True)
    failure = job.failure
    assert failure is not None and (failure["rank"], failure["how"]) == (1, "raised")
    assert "raised ValueError: nan in the data. Then rank 0 ended too." in failure["text"]
    watched = wb.watch(tmp_path / "trace")
    try:
        assert watched.wait(120)
        assert watched.error == failure["text"], "watch and load say the same of one folder"
    finally:
        watched.close()
    page = page_of(job)
    assert (page["state"], page["words"]) == ("failed", failure["text"])
    job.store.save(tmp_path / "job.parquet")
    again = wb.load(tmp_path / "job.parquet")
    assert again.failure == failure, "a saved file says so, too"


def test_a_job_that_sends_nothing_has_ranks_and_has_finished(tmp_path: Path) -> None:
    job = record(tmp_path, 2, "dist.destroy_process_group()")
    facts = {"ranks": 2, "iterations": -1}
    words = "All 2 ranks have ended. No collective was called, and no message sent."
    assert state_of(job, True, facts, 0, -1) == ("finished", words)
    assert job.store.metadata["ranks"] == "2"


LATE = """
    class Slow(torch.autograd.Function):  # 03: rank 1 is slow within its backward pass
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, gradient):
            if me == 1:
                time.sleep(LATE_SECONDS)
            return gradient
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)
        def forward(self, x):
            return self.last(Slow.apply(self.first(x)))
    model = torch.nn.parallel.DistributedDataParallel(Net())
    for _ in range(10):
        model(torch.ones(4, 8)).sum().backward()
    dist.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.parametrize("way", first(1, [ENGINE, OPERATIONS]))
def test_the_rank_that_arrives_last_is_named(tmp_path: Path, way: str) -> None:
    # Rank 1 sleeps longer than busy cores delay the others.
    script = LATE.replace("LATE_SECONDS", f"{0.2 * crowding():.2f}")
    job = record(tmp_path, 3, script, way=way)
    line = f"script.py:{line_of(LATE, '.backward()')}"
    result = job.bottleneck()
    assert result is not None and (result.cause, result.rank) == ("straggler", 1), result
    assert "Rank 1 arrives last in" in result.words and f"at {line}" in result.words
    reduces = job.calls().filter(collective="all_reduce", name=line, last=1)
    assert reduces.height >= 8 and reduces["own_ms"].median() > 100  # type: ignore[operator]
    late = job.waits().group_by("peer").agg(pl.col("late_ms").sum()).sort("late_ms")
    assert late["peer"][-1] == 1, "no other rank is waited for because it is late"
