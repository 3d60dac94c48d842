"""Time as a control of a live run: held, stepped, slowed, stopped.

What is timed here is slept or paced, never computed: a busy machine makes it later, not different.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, cpu_seconds, lasting, lenet, of, trained, training, until
from tests.pairwise import first
from tests.runs.steered import hold, sends, settle, started
from workbench import laws
from workbench.shared_memory.control_block import ATTENTION, HELD, Control

# -- pause and step --


@pytest.mark.alone
@pytest.mark.parametrize(
    ("strategy", "all_reduce", "seconds"),
    # naive: the root is not held itself, it waits for those that are, with a look twice per second
    first(1, [("data_parallel", "ring", 2), ("ddp", "ring", 2), ("data_parallel", "naive", 4)]),
)
def test_a_held_run_stands_costs_nothing_and_does_not_time_out(
    strategy: str, all_reduce: str, seconds: int
) -> None:
    with started(ranks=3, strategy=strategy, all_reduce=all_reduce, timeout="1 s") as run:
        hold(run)
        rows, cpu = len(run.store), cpu_seconds(run.pids.values())
        time.sleep(seconds)
        assert len(run.store) == rows
        used = cpu_seconds(run.pids.values()) - cpu
        assert used <= 0.01 * seconds * 3 + 0.01  # counted in ticks of 10 ms
        assert not run.done
        at = run.iteration
        run.resume()
        until(lambda: run.iteration > at + 2, what="the run goes on")
    assert of(run.events, kind="detect").height == 0


def test_pausing_twice_and_resuming_at_once_is_harmless() -> None:
    with started() as run:
        for _ in range(20):
            run.pause()
            run.pause()
            run.resume()
        at = run.iteration
        until(lambda: run.iteration > at + 2, what="the run goes on")


def test_a_held_run_can_be_stopped() -> None:
    with started() as run:
        hold(run)


@pytest.mark.parametrize("all_reduce", first(1, ["ring", "one_shot", "naive"]))
def test_a_step_by_chunk_lets_every_rank_send_one(all_reduce: str) -> None:
    with started(ranks=3, all_reduce=all_reduce) as run:
        hold(run)
        for _ in range(4):
            before = sends(run)
            run.step(1)
            settle(run)
            new = sends(run).join(before, on=["rank", "lane", "seq"], how="anti")
            counts = new.group_by("rank").len()["len"]
            assert new.height >= 1 and counts.max() == 1
            if all_reduce == "ring":  # every rank has one to send
                assert new.height == 3


def test_three_chunks_at_a_time() -> None:
    with started(ranks=2) as run:
        hold(run)
        before = sends(run).height
        run.step(3)
        settle(run)
        assert sends(run).height - before == 2 * 3


def test_a_step_of_the_algorithm_is_all_its_slots() -> None:
    """4 KB slots cut a chunk of the larger gradients into several."""
    with started(ranks=2, chunk_bytes=4096) as run:
        hold(run)
        for _ in range(60):  # until one of the large gradients comes
            before = sends(run)
            run.step(1, unit="step")
            settle(run, 10)
            new = sends(run).join(before, on=["rank", "lane", "seq"], how="anti")
            per_rank = new.group_by("rank").agg(pl.col("op", "step").n_unique(), pl.len())
            assert (per_rank["op"] == 1).all() and (per_rank["step"] == 1).all()
            if per_rank["len"].max() > 1:
                return
    pytest.fail("no step had more than one slot")


def test_a_step_by_iteration() -> None:
    with started(ranks=3) as run:
        hold(run)
        run.step(1, unit="iteration")  # to the end of the one that is under way
        settle(run)
        at = run.iteration
        for count in (1, 2):
            run.step(count, unit="iteration")
            settle(run)
            at += count
            assert run.iteration == at
            ended = of(run.events, kind="optimizer").group_by("rank").len()["len"].to_list()
            assert ended == [at] * 3


PIPELINES = {
    "strategy": "pipeline",
    "ranks": 4,
    "batch_size": 32,
    "options": {"replicas": 2, "microbatches": 4},
}


def stepped(run: wb.Run, unit: str) -> pl.DataFrame:
    """The new send rows of training after one step."""
    before = sends(run)
    run.step(1, unit=unit)
    settle(run)
    return sends(run).join(before, on=["rank", "lane", "seq"], how="anti")


@pytest.mark.full
def test_a_step_is_of_a_rank_in_whichever_of_its_groups() -> None:
    """Two pipelines side by side: a rank passes activations on in one group, and sums gradients
    with its twin in another.
    """
    with started(**PIPELINES) as run:
        hold(run)
        groups: set[str] = set()
        for _ in range(25):
            new = stepped(run, "chunk")
            assert new.is_empty() or new.group_by("rank").len()["len"].max() == 1, new
            groups |= set(new["group"].cast(pl.String))
        assert len(groups) >= 2, "the steps came to messages and to sums"


@pytest.mark.full
def test_a_step_of_messages_is_a_whole_message() -> None:
    """4 KB slots cut what goes from stage to stage into several."""
    with started(**PIPELINES, chunk_bytes=4096) as run:
        hold(run)
        whole = False
        for _ in range(12):
            new = stepped(run, "step")
            per_rank = new.group_by("rank").agg(
                pl.struct("group", "peer", "op", "step").n_unique().alias("steps"),
                pl.len(),
                messages=(pl.col("collective") == "p2p").sum(),
            )
            assert (per_rank["steps"] == 1).all(), per_rank
            whole = whole or bool((per_rank["messages"] > 1).any())
        assert whole, "no message had more than one slot"
        slots = of(trained(run.events), kind="send", collective="p2p")
        sizes = slots.group_by("group", "rank", "peer", "op").agg(pl.col("nbytes").sum())["nbytes"]
        assert sizes.n_unique() <= 2  # activations, and gradients of them: none is half sent


def test_a_grant_lets_one_of_a_ranks_threads_pass_and_only_in_its_pause() -> None:
    control = Control.create(2)
    gate, other = control.own_gate(0), control.own_gate(1)
    assert control.own_gate(0) is gate and gate.lets_chunk("a", ("g", 0, 0), 0)
    control.grant("chunk")  # no rank is held
    control.hold()
    assert not gate.lets_chunk("a", ("g", 0, 0), 0)
    assert not gate.lets_chunk("b", ("h", 0, 0), 0)
    assert control.standing() == [0]
    assert not other.lets_chunk("a", ("g", 0, 0), 0)
    control.grant("chunk")
    assert control.standing() == [] and control.under_way([0])  # no rank knows of it yet
    assert gate.lets_chunk("b", ("h", 0, 0), 0)
    assert not gate.lets_chunk("a", ("g", 0, 0), 0) and not gate.lets_chunk("b", ("h", 0, 1), 0)
    assert control.standing() == [0] and other.lets_chunk("a", ("g", 0, 0), 0)
    control.grant("step")
    for _ in range(3):  # slots of one step
        assert gate.lets_chunk("a", ("g", 0, 0), 0) and not gate.lets_chunk("b", ("h", 0, 1), 0)
    control.grant("chunk")  # no rank comes for it
    control.let_go()
    assert gate.lets_chunk("b", ("h", 0, 1), 0) and control.standing() == []
    control.hold()
    assert control.standing() == []  # those of another pause have gone on
    assert not gate.lets_chunk("a", ("g", 0, 0), 0)
    gate.leave("a")
    assert control.standing() == []
    control.segment.close()


def test_attention_is_never_an_older_answer() -> None:
    """One thread lifts a link while another pauses; the first has looked before the pause."""
    control = Control.create(2)
    words, looked, go_on = control.words, threading.Event(), threading.Event()

    class Slow:
        def __getitem__(self, at: Any) -> Any:
            return words[at]

        def __setitem__(self, at: int, value: int) -> None:
            if at == ATTENTION and threading.current_thread() is lifting:
                looked.set()
                go_on.wait(10)
            words[at] = value

    control.words = Slow()  # type: ignore[assignment]
    lifting = threading.Thread(target=control.set_link, args=(0, 1), kwargs={"down": False})
    lifting.start()
    assert looked.wait(10)
    pausing = threading.Thread(target=control.hold)
    pausing.start()
    pausing.join(0.2)  # it comes through only if nothing makes it wait
    go_on.set()
    lifting.join()
    pausing.join()
    assert words[HELD] == 1 and words[ATTENTION] == 1
    control.segment.close()


def test_an_unknown_unit_or_rank_is_refused() -> None:
    with started() as run:
        with pytest.raises(ValueError, match="must be 'chunk' or 'step' or 'iteration'"):
            run.step(1, unit="epoch")
        with pytest.raises(ValueError, match="ranks 0 to 1"):
            run.slow(2, factor=2)
        with pytest.raises(ValueError, match="the factor is 1"):
            run.slow_motion(0.5)


# -- slow motion, slow ranks --


@pytest.mark.alone
def test_slow_motion_stretches_transfers() -> None:
    """At k a transfer lasts k times as long as copying does.

    A core that slept copies several times more slowly (cold caches, a low clock), so the bound from
    above is generous: halfway, in powers of k, between k and k squared.
    """
    with started(ranks=2) as run:
        durations = []
        for k in (1, 50, 1):
            run.slow_motion(k)
            since = time.monotonic_ns()
            time.sleep(0.05)
            until(lambda since=since: large(run, since).height >= 20, what=f"transfers at {k}")
            durations.append(lasting(large(run, since)))
    before, slowed, after = durations
    assert slowed.min() < 50**1.5 * before.median()
    assert 50 * before.min() < slowed.median()
    assert after.median() < slowed.min()


def large(run: wb.Run, since: int) -> pl.DataFrame:
    """Transfers of LeNet's largest gradient that were begun since then."""
    rows = sends(run).filter(pl.col("start_ns") > since + 30_000_000)
    return of(rows, nbytes=96_000)


@pytest.mark.alone
def test_slow_motion_stretches_emulated_links_too() -> None:
    network = wb.Network(latency="1 ms", bandwidth="500 Mbit/s")
    with started(network=network) as run:
        run.slow_motion(10)
        since = time.monotonic_ns()
        until(lambda: large(run, since).height >= 8, what="transfers in slow motion")
        least = lasting(large(run, since)).min()  # nothing makes one shorter
    assert least == pytest.approx(96_000 / 62_500 * 10, rel=0.08)


@pytest.mark.alone
def test_a_slow_rank_computes_longer_from_now_on() -> None:
    with started(pad_compute="30 ms") as run:
        at = run.iteration
        until(lambda: run.iteration > at + 9)
        run.slow(1, factor=4)
        slowed = run.iteration + 1
        until(lambda: run.iteration > slowed + 9)
        events = of(run.events, kind="backward")
    for rank, factor in ((0, 1), (1, 4)):
        mine = of(events, rank=rank).filter(pl.col("iteration") > 0)
        before = lasting(mine.filter(pl.col("iteration") < slowed - 1)).min()
        after = lasting(mine.filter(pl.col("iteration") > slowed)).min()
        assert after / before == pytest.approx(factor, rel=0.15)
    assert of(run.events, kind="fault", name="slow")["value"].to_list() == [4.0]


# -- stop --


@pytest.mark.parametrize("strategy", first(1, ["sequential", "data_parallel", "ddp"]))
def test_stop_ends_all_ranks_after_the_same_iteration(strategy: str) -> None:
    for delay in (0.0, 0.3, 0.31, 0.33):
        run = wb.run(
            lenet(strategy=strategy, ranks=1 if strategy == "sequential" else 3, iterations=LONG)
        )
        if delay:
            training(run)
            time.sleep(delay)
        run.stop()
        result = run.wait(timeout=90)
        assert result.ok and 1 <= len(result.losses) < LONG
        assert len(set(result.digests.values())) == 1
        assert of(run.events, kind="optimizer").group_by("rank").len()["len"].n_unique() == 1
        assert laws.check_events(run.events) == []


def test_stop_lifts_what_would_keep_the_ranks_from_ending() -> None:
    with started(ranks=3) as run:
        run.slow_motion(1000)
        run.link(0, 1, down=True)
        run.freeze(2)
        run.pause()
        time.sleep(0.3)


def test_full_speed_again_ends_a_flight_that_slow_motion_made_long() -> None:
    with started(ranks=2) as run:
        run.slow_motion(5_000_000)  # a chunk's flight would now last for minutes
        time.sleep(0.5)
        stuck = run.iteration
        run.slow_motion(1)
        until(lambda: run.iteration >= stuck + 3, what="the flight ends")


def test_controls_of_a_finished_run_do_nothing() -> None:
    run = wb.run(lenet(iterations=2))
    run.wait(timeout=60)
    run.pause()
    run.step(1)
    run.resume()
    run.slow_motion(5)
    run.link(0, 1, latency="5 ms")
    run.kill(0)
    run.freeze(1)
    run.stop()
    assert run.wait(timeout=1).ok and run.iteration == 1
