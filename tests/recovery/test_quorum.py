"""``recovery="quorum"``: a rank that is late is left out, and comes back in its own process."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import LONG, lenet, over_in_the_end, training, until
from tests.pairwise import first
from tests.recovery.lasting import generations, recovered
from tests.recovery.test_policies import assert_as_sequential, experiment, kinds
from workbench.messaging.fingerprint import nbytes_of, signature
from workbench.shared_memory.late_words import Lag, lag_of, lag_word, late_of, late_word
from workbench.store.recoveries import Recovery

FREEZE = wb.Freeze(rank=1, at_iteration=4, seconds=1.5)
SLOW = wb.Slow(rank=1, at_iteration=4, factor=60, seconds=0.3)  # one iteration lasts 1.8 s


def left_and_joined(run: wb.Run, rank: int) -> tuple[Recovery, Recovery]:
    """Return the generations in which this rank is first lost and comes back.

    On busy cores others may be late as well; none is lost otherwise, and in the end all are there.
    """
    history = generations(run)
    assert {how for one in history for how in one.lost.values()} == {"late"}
    assert history[-1].members == (0, 1, 2) and history[-1].fresh
    left = next(number for number, one in enumerate(history) if str(rank) in one.lost)
    return history[left], next(one for one in history[left:] if rank in one.fresh)


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "fault"),
    first(
        1,
        [
            ("data_parallel", FREEZE),
            ("ddp", SLOW),
            ("fusion", FREEZE),
            ("data_parallel", wb.Freeze(rank=0, after="0.4 s", seconds=1)),
            ("data_parallel", wb.Freeze(rank=2, when=wb.When(rank=2, step=2), seconds=1)),
        ],
    ),
    ids=str,
)
def test_a_late_rank_is_left_out_and_comes_back_with_what_the_others_have(
    strategy: str, fault: Any
) -> None:
    fields = {"recovery": "quorum", "quorum_timeout": "0.3 s", "pad_compute": "30 ms"}
    run = wb.run(experiment(strategy, 3, iterations=90, faults=fault, **fields))
    pids = dict(run.pids)
    result = run.wait(timeout=90)
    assert_as_sequential(run, result, {0, 1, 2})
    assert run.pids == pids, "no rank was ended"
    rank = fault.rank
    left, joined = left_and_joined(run, rank)
    assert rank not in left.members
    assert rank in joined.members and result.lost == []
    notices = kinds(run, "detect").filter(pl.col("rank") == -1)
    assert {("left out", rank), ("arrived", rank)} <= {*notices.select("name", "peer").rows()}
    received = kinds(run, "restore").filter(pl.col("name") == "received")
    assert {*received["rank"]} == {other for one in generations(run) for other in one.fresh}
    detection = run.detection()
    assert not detection.missed and not detection.false_alarms, detection
    assert detection.each[0].latency_ms is not None
    assert re.search(rf"ranks? [^;]*\b{rank}\b[^;]* (was|were) late", repr(run.recovery()))


@pytest.mark.parametrize(
    ("strategy", "every"), first(1, [("local_sgd", 3), ("diloco", 3), ("local_sgd", 1)])
)
def test_rounds_go_on_from_the_last_mean(strategy: str, every: int) -> None:
    """Averaged after every iteration, with SGD, local SGD is data parallel training."""
    fields = {"recovery": "quorum", "quorum_timeout": "0.3 s", "pad_compute": "30 ms"}
    options = {"every": every}
    run = wb.run(experiment(strategy, 3, iterations=60, faults=FREEZE, options=options, **fields))
    result = run.wait(timeout=90)
    assert len(result.losses) == 60 and len({*result.digests.values()}) == 1
    left, joined = left_and_joined(run, 1)
    assert left.iteration % every == 0
    assert joined.iteration % every == 0


def test_where_too_few_would_be_left_the_late_one_is_waited_for() -> None:
    fault = wb.Freeze(rank=1, at_iteration=3, seconds=0.8)
    exp = experiment("data_parallel", (2, 2), recovery="quorum", quorum_timeout="0.2 s")
    run = wb.run(exp.replace(faults=fault))
    assert_as_sequential(run, run.wait(timeout=90), {0, 1})
    assert generations(run) == []


@pytest.mark.parametrize(
    ("strategy", "recovery"), first(1, [("local_sgd", "quorum"), ("data_parallel", "shrink")])
)
def test_a_stopped_rank_is_kept_where_all_others_are_lost(strategy: str, recovery: str) -> None:
    """It alone has what is trained, also where the others have just left it out."""
    fields = {"recovery": recovery, "pad_compute": "5 ms", "iterations": LONG}
    if recovery == "quorum":
        fields["quorum_timeout"] = "0.3 s"
    with over_in_the_end(wb.run(experiment(strategy, 2, **fields))) as run:
        training(run)
        for pid in run.pids.values():  # so that rank 1 does not leave the group before it is killed
            os.kill(pid, signal.SIGSTOP)
        if recovery == "quorum":
            row_filter = pl.col("name").cast(pl.String) == "left out"
            until(lambda: run.events.filter(row_filter).height, 30, "rank 0 is left out")
        run.kill(1)
        detected = pl.col("name").cast(pl.String) == "killed"
        until(lambda: run.done or run.events.filter(detected).height, 30, "the loss is noticed")
        time.sleep(0.2)  # in which it must not be ended
        os.kill(run.pids[0], signal.SIGCONT)
        result = recovered(run)
    assert result.ok and result.lost == [1]
    assert [one.members for one in generations(run)] == [(0,)]


def slow_links(ranks: int, *slow: int) -> wb.Network:
    """Return links of which those from these ranks are slow: 1.5 s a message."""
    link = wb.Link(latency="1500 ms")
    return wb.Network(links={(a, b): link for a in slow for b in range(ranks) if a != b})


LAGS = {"recovery": "quorum", "quorum_timeout": "1.2 s", "iterations": 12, "timeout": "60 s"}


@pytest.mark.parametrize(("ranks", "slow"), first(1, [(5, (1, 3)), (3, (1, 2))]))
def test_ranks_behind_slow_links_are_left_out_although_all_have_come(
    ranks: int, slow: tuple[int, ...]
) -> None:
    """Of three one remains, of five three go on; none of the two comes back over such links."""
    run = wb.run(experiment("data_parallel", ranks, network=slow_links(ranks, *slow), **LAGS))
    result = run.wait(timeout=120)
    rest = {*range(ranks)} - {*slow}
    assert_as_sequential(run, result, rest)
    history = generations(run)
    assert {how for one in history for how in one.lost.values()} == {"late"}
    assert {*history[-1].members} == rest and not any(one.fresh for one in history)


@pytest.mark.full
def test_a_rank_comes_back_once_its_link_is_fast_again() -> None:
    exp = experiment("data_parallel", 3, network=slow_links(3, 2), **LAGS)
    with over_in_the_end(wb.run(exp.replace(iterations=LONG, pad_compute="10 ms"))) as run:
        until(lambda: run.done or generations(run), 60, "rank 2 is left out")
        stood = run.iteration
        until(lambda: run.done or run.iteration > stood + 3, 60, "the others go on")
        assert generations(run)[-1].members == (0, 1) and not run.done
        run.link(2, 0, latency="0 ms")
        stood = run.iteration
        until(lambda: run.done or run.iteration > stood + 3, 60, "the others go on")
        assert generations(run)[-1].members == (0, 1), "one link of two"
        run.link(2, 1, latency="0 ms")
        until(lambda: run.done or generations(run)[-1].members == (0, 1, 2), 60, "it is back")
        run.stop()
        result = run.wait(timeout=60)
    assert_as_sequential(run, result, {0, 1, 2}, stopped=True)
    assert generations(run)[-1].fresh == (2,)
    words = run.recovery()[-1].words
    assert "rank 2 joined" in words and "new process" not in words, "it has kept its own"


def test_what_a_rank_says_of_a_link_is_what_was_said() -> None:
    assert lag_of(0) is None
    for lag in (Lag(1023, 3, 7), Lag(0, 1, 0), Lag(5, 8191, 2**40 - 1)):
        assert lag_of(lag_word(lag)) == lag
    assert lag_of(lag_word(Lag(1, 10_000, 2**50))) == Lag(1, 8191, 2**40 - 1)
    assert nbytes_of(signature("all_reduce", torch.float64, 10, "SUM")) == 80
    assert nbytes_of(signature("barrier")) == 0


def test_what_a_rank_says_of_another_grows_old() -> None:
    word = late_word(5, 3)
    assert late_of(word, 3, 60) == 5
    assert late_of(word, 4, 60) is None and late_of(word, 3, -1) is None
    assert late_of(0, 0, 60) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"strategy": "gossip"}, "'gossip' takes none"),
        ({"strategy": "parameter_server", "ranks": 3}, "'parameter_server' takes none"),
        ({"strategy": "fsdp"}, "takes something along"),
        ({"quorum_timeout": "0 s"}, "quorum_timeout"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**{"recovery": "quorum", **fields})
