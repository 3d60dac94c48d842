"""Reports of ranks that take different calls: which calls what, where, and what helps."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.processes import Ended
from tests.public_reports.attached import attached, line_of, record

# A group for each case: where its ranks disagree, the others' groups go on.
CASES = """
    limit = datetime.timedelta(seconds=60)
    def case(name, ranks, body):
        group = dist.new_group(ranks, timeout=limit)
        if me in ranks:
            try:
                body(group)
                print(name, "ended", flush=True)
            except RuntimeError as error:
                print(name, error, flush=True)

    def expert(group):  # 14: a rank without a token skips the reduction
        if me == 0:
            dist.all_reduce(torch.ones(16), group=group)  # of the expert
        dist.barrier(group=group)  # after the expert
    case("14", [0, 1], expert)

    def metrics(group):  # 20: a rank without metrics skips the gather
        if me < 3:
            dist.all_gather(list(torch.zeros(4, 2)), torch.ones(2), group=group)  # of metrics
        dist.barrier(group=group)  # after metrics
    case("20", [0, 1, 2, 3], metrics)

    def state(group):  # 21: a file that one rank alone sees
        if me == 0:
            dist.broadcast(torch.ones(3), src=0, group=group)  # of the state
        dist.all_reduce(torch.ones(1), group=group)  # of the loss
        dist.all_reduce(torch.ones(1), group=group)  # and once more
    case("21", [0, 1], state)

    def best(group):  # 22: all decide by what a reduce has left them
        loss = torch.tensor([2.0 if me == 0 else 4.0])
        dist.reduce(loss, dst=0, group=group)
        if loss.item() < 5:
            dist.barrier(group=group)  # before saving
        dist.all_reduce(torch.ones(1), group=group)  # goes on
    case("22", [0, 1], best)

    def wider(group):  # float64 on one rank, float32 on the other
        kind = torch.float64 if me == 0 else torch.float32
        dist.all_reduce(torch.ones(2, dtype=kind), group=group)  # of two kinds
    case("E7", [0, 1], wider)

    def leader(group):  # 23: a group's leader, taken for a rank of the job
        try:
            dist.broadcast(torch.ones(1), src=0, group=group)
        except ValueError as error:
            print("23 refused", error, flush=True)
        dist.broadcast(torch.ones(1), group_src=0, group=group)
    case("23", [1, 2, 3], leader)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    ended = attached(tmp_path_factory.mktemp("disagree"), 4, CASES)
    assert [one.code for one in ended] == [0] * 4, [one.err[-3000:] for one in ended]
    return ended


def errors(ranks: list[Ended], case: str) -> list[str]:
    """Return what the ranks printed of a case."""
    lines = [line for one in ranks for line in one.out.splitlines()]
    return [line for line in lines if line.startswith(f"{case} ")]


@pytest.mark.parametrize(
    ("case", "first", "second"),
    [
        (
            "14",
            ("0 calls all_reduce(SUM) of 16 float32", "# of the expert"),
            ("1 calls barrier", "# after the expert"),
        ),
        (
            "21",
            ("0 calls broadcast of 3 float32 from rank 0", "# of the state"),
            ("1 calls all_reduce(SUM) of 1 float32", "# of the loss"),
        ),
        (
            "22",
            ("0 calls all_reduce(SUM) of 1 float32", "# goes on"),
            ("1 calls barrier", "# before saving"),
        ),
        (
            "E7",
            ("0 calls all_reduce(SUM) of 2 float64", "# of two kinds"),
            ("1 calls all_reduce(SUM) of 2 float32", "# of two kinds"),
        ),
    ],
)
def test_both_calls_are_named_with_both_lines(
    ranks: list[Ended], case: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    words = [f"rank {call} at script.py:{line_of(CASES, text)}" for call, text in (first, second)]
    for message in errors(ranks, case):
        assert all(one in message for one in words), (message, words)
    assert len(errors(ranks, case)) == 2


def test_a_rank_that_skips_a_gather_is_named(ranks: list[Ended]) -> None:
    barrier = f"rank 3 calls barrier at script.py:{line_of(CASES, '# after metrics')}"
    messages = errors(ranks, "20")
    assert len(messages) == 4 and all(barrier in one for one in messages), messages


def test_after_a_reduce_it_is_said_that_the_root_alone_has_the_result(ranks: list[Ended]) -> None:
    for words in errors(ranks, "22"):
        assert "after it only rank 0 has the result" in words and "all_reduce" in words


def test_a_group_says_which_of_its_ranks_is_which(ranks: list[Ended]) -> None:
    refusals = errors(ranks, "23 refused")
    assert len(refusals) == 3
    assert all("group of ranks 1, 2, 3: group rank 0 is global rank 1" in one for one in refusals)


LEFT = """
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(4 if me == 0 else 3):  # 37: one minibatch more on one rank
        model(torch.ones(1, 2)).sum().backward()
    dist.barrier()
"""


def test_the_record_says_which_ranks_were_in_which_calls(tmp_path: Path) -> None:
    job = record(tmp_path, 2, LEFT, fails=True)
    lines = [line_of(LEFT, text) for text in (".backward()", "dist.barrier()")]
    failure = job.failure
    assert failure is not None
    words = (
        f"rank 0 calls all_reduce(SUM) of 3 float32 at script.py:{lines[0]}, "
        f"rank 1 calls barrier at script.py:{lines[1]}"
    )
    assert words in failure["text"]
    assert "callback" not in failure["text"], "it has room for one error: the one that says most"
    open_ones = job.calls().filter(~pl.col("completed")).sort("collective")
    assert open_ones.select("collective", "name", "members").rows() == [
        ("all_reduce", f"script.py:{lines[0]}", [0]),
        ("barrier", f"script.py:{lines[1]}", [1]),
    ]
    assert open_ones["number"].n_unique() == 1
    assert f"collective {open_ones['number'][0]}:" in failure["text"], "one number"
    assert open_ones["took_ms"].null_count() == 2, "it never ended"


ORDERS = """
    limit = datetime.timedelta(seconds=3)
    if me < 2:  # 25, continued: members alone make a group, then all make one
        dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1], timeout=limit))
    dist.new_group([0, 1, 2, 3], timeout=limit)
"""


def test_ranks_that_make_groups_in_different_orders_say_which_each_makes(tmp_path: Path) -> None:
    ended = attached(tmp_path, 4, ORDERS)
    order = "ranks 0, 1 make their 2nd group, ranks 2, 3 their 1st"
    for one in ended:
        assert one.code and order in one.err, one.err[-2000:]
    assert "rank 1 of group 2 (4 ranks): ranks 2, 3 did not join it" in ended[1].err
    assert not any("rank 0 did not join" in one.err for one in ended), "rank 0 is there"
