"""Time and links as controls of a live run: held, stepped, slowed, paced, cut.

What is timed here is slept or paced, never computed: a busy machine makes it later, not different.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, cpu_seconds, gone, lasting, lenet, of, trained, training, until
from workbench import laws
from workbench.control import Control
from workbench.pacing import Pacer


@contextlib.contextmanager
def started(**fields: Any) -> Iterator[wb.Run]:
    """A run that would go on for ever, trained a little; stopped, and found right, in the end."""
    run = wb.run(lenet(**{"iterations": LONG, **fields}))
    try:
        yield training(run, 1)
    except BaseException:
        for rank in run.pids:
            run.kill(rank)
        run.wait(timeout=20, check=False)
        raise
    run.stop()
    result = run.wait(timeout=30)
    assert result.ok and gone(run.pids.values())
    assert len(set(result.digests.values())) == 1
    assert run.dropped == 0 and laws.check_events(run.events) == []


def sends(run: wb.Run) -> pl.DataFrame:
    return of(trained(run.events), kind="send")


def hold(run: wb.Run) -> None:
    """Pause, and wait until no rank moves any more."""
    run.pause()
    settle(run)


def settle(run: wb.Run, quiet: float = 0.25) -> None:
    """Until nothing has been recorded for so many seconds."""
    deadline = time.monotonic() + 10
    rows, since = -1, time.monotonic()
    while time.monotonic() - since < quiet or not run.held:
        assert time.monotonic() < deadline, "the ranks do not come to a stand"
        if len(run.store) != rows:
            rows, since = len(run.store), time.monotonic()
        time.sleep(0.01)


# -- pause and step --


@pytest.mark.alone
@pytest.mark.parametrize(
    ("strategy", "all_reduce", "seconds"),
    # naive: the root is not held itself, it waits for those that are, with a look twice a second
    [("data_parallel", "ring", 2), ("ddp", "ring", 2), ("data_parallel", "naive", 4)],
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


@pytest.mark.parametrize("all_reduce", ["ring", "one_shot", "naive"])
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
            settle(run, 0.1)
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


def test_an_unknown_unit_or_rank_is_refused() -> None:
    with started() as run:
        with pytest.raises(ValueError, match="chunk, step, iteration"):
            run.step(1, unit="epoch")
        with pytest.raises(ValueError, match="ranks 0 to 1"):
            run.slow(2, factor=2)
        with pytest.raises(ValueError, match="the factor is 1"):
            run.slow_motion(0.5)


# -- slow motion, slow ranks --


@pytest.mark.alone
def test_slow_motion_stretches_transfers() -> None:
    """At k a transfer lasts k times as long as copying does, which a core that slept is slow at."""
    with started(ranks=2) as run:
        seen = []
        for k in (1, 50, 1):
            run.slow_motion(k)
            since = time.monotonic_ns()
            time.sleep(0.05)
            until(lambda since=since: large(run, since).height >= 20, what=f"transfers at {k}")
            seen.append(lasting(large(run, since)))
    before, slowed, after = seen
    assert 50 * before.min() < slowed.min() < 50 * before.max() + 0.2
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
        until(lambda: large(run, since).height >= 4, what="transfers in slow motion")
        median = lasting(large(run, since)).median()
    assert median == pytest.approx(96_000 / 62_500 * 10, rel=0.08)


@pytest.mark.alone
def test_a_slow_rank_computes_longer_from_now_on() -> None:
    with started(pad_compute="15 ms") as run:
        at = run.iteration
        until(lambda: run.iteration > at + 6)
        run.slow(1, factor=4)
        slowed = run.iteration + 1
        until(lambda: run.iteration > slowed + 6)
        events = of(run.events, kind="backward")
    for rank, factor in ((0, 1), (1, 4)):
        mine = of(events, rank=rank).filter(pl.col("iteration") > 0)
        before = lasting(mine.filter(pl.col("iteration") < slowed - 1)).median()
        after = lasting(mine.filter(pl.col("iteration") > slowed)).median()
        assert after / before == pytest.approx(factor, rel=0.15)
    assert of(run.events, kind="fault", name="slow")["value"].to_list() == [4.0]


# -- links --


def pairs(events: pl.DataFrame, source: int) -> pl.DataFrame:
    """A sender's large messages: ms they took to leave (``flight``), and then to arrive (``late``).

    ``waited``: the receiver was there before. One that comes later says nothing of the link.
    """
    key = ["op", "step", "chunk", "slot"]
    sends = of(events, kind="send", rank=source).filter(pl.col("nbytes") >= 40_000)
    left = sends.select(*key, "nbytes", sent="start_ns", left="end_ns")
    there = of(events, kind="recv", peer=source).select(*key, there="start_ns")
    waits = of(events, kind="wait", peer=source).group_by(key).agg(waited=pl.lit(True))
    return (
        left.join(there, on=key)
        .join(waits, on=key, how="left")
        .with_columns(
            pl.col("waited").fill_null(False),
            flight=(pl.col("left") - pl.col("sent")) / 1e6,
            late=(pl.col("there") - pl.col("left")) / 1e6,
        )
    )


@pytest.mark.alone
@pytest.mark.parametrize(
    ("rate", "chunk_bytes"),
    [("50 Mbit/s", 65_536), ("50 Mbit/s", 262_144), ("200 Mbit/s", 262_144)],
)
def test_bandwidth_is_accurate(rate: str, chunk_bytes: int) -> None:
    """Each transfer of 1 ms and more, and what arrives, within 5 % (DESIGN.md)."""
    with started(chunk_bytes=chunk_bytes) as run:
        run.link(0, 1, bandwidth=rate)
        since = time.monotonic_ns()
        until(lambda: arrived(run, since).height >= 9, what="transfers")
    rows = arrived(run, since)
    wanted = rows["nbytes"] / (float(rate.split()[0]) * 125)  # ms
    assert quick(rows["flight"] / wanted) == pytest.approx(1, abs=0.05)
    assert quick(rows["flight"] / wanted + rows["late"] / wanted) == pytest.approx(1, abs=0.05)
    # The other direction is as fast as ever.
    back = of(trained(run.events), kind="send", rank=1).filter(pl.col("start_ns") > since)
    assert lasting(of(back, nbytes=rows["nbytes"].max())).median() < wanted.max() / 3


def quick(times: pl.Series) -> float:
    """The first quartile: a busy machine wakes the receiver late, and never early."""
    return times.quantile(0.25, "nearest")


def arrived(run: wb.Run, since: int) -> pl.DataFrame:
    """What rank 0 sent since then, and was waited for."""
    return pairs(trained(run.events), 0).filter("waited", pl.col("sent") > since + 20_000_000)


@pytest.mark.alone
def test_latency_is_accurate() -> None:
    with started() as run:
        run.link(0, 1, latency="5 ms")
        since = time.monotonic_ns()
        until(lambda: arrived(run, since).height >= 8, what="transfers")
    rows = arrived(run, since)
    assert quick(rows["late"]) == pytest.approx(5, rel=0.05)
    assert (rows["flight"] + rows["late"]).min() >= 5  # never early


@pytest.mark.alone
def test_a_network_is_what_the_experiment_says_link_by_link() -> None:
    """1->2 differs from the rest; a link's faults are rows."""
    links = {(1, 2): wb.Link(latency="8 ms", bandwidth="100 Mbit/s")}
    run = wb.run(lenet(ranks=3, iterations=6, network=wb.Network(latency="2 ms", links=links)))
    assert run.wait(timeout=60).ok
    events = trained(run.events)
    for source, ms in ((0, 2), (1, 8), (2, 2)):
        rows = pairs(events, source)
        assert (rows["flight"] + rows["late"]).min() >= ms
    slow = pairs(events, 1).filter("waited")
    assert quick(slow["late"]) == pytest.approx(8, rel=0.05)
    assert quick(pairs(events, 2).filter("waited")["late"]) == pytest.approx(2, rel=0.1)
    assert quick(slow["flight"] / (slow["nbytes"] / 12_500)) == pytest.approx(1, abs=0.05)


@pytest.mark.alone
def test_pacing_sleeps() -> None:
    """Almost all of the time is the link's; then almost no processor time is the ranks'."""
    with started(batch_size=2, network=wb.Network(bandwidth="5 Mbit/s")) as run:
        cpu = cpu_seconds(run.pids.values())
        time.sleep(2)
        assert cpu_seconds(run.pids.values()) - cpu < 0.3


def test_both_directions_at_once() -> None:
    with started() as run:
        run.link(0, 1, latency="4 ms", both=True)
        since = time.monotonic_ns()
        until(lambda: arrived(run, since).height >= 3)
        rows = pairs(trained(run.events), 1).filter(pl.col("sent") > since + 20_000_000)
    assert (rows["flight"] + rows["late"]).min() >= 4  # late alone is less where the copy was slow
    names = of(run.events, kind="fault")["name"].cast(str).to_list()
    assert names == ["link 0->1 4 ms", "link 1->0 4 ms"]


def test_a_link_s_row_says_what_the_link_is_now() -> None:
    with started() as run:
        run.link(0, 1, latency="20 ms", bandwidth="10 Mbit/s")
        run.link(0, 1, down=True)
        run.link(0, 1, down=False, latency="0 ms")
        run.link(0, 1, bandwidth="unlimited")
        run.slow(1, 2.5)
        until(lambda: of(run.events, kind="fault").height == 5)
        rows = of(run.events, kind="fault").select(pl.col("name").cast(str), "peer", "value").rows()
    assert [name for name, *_ in rows] == [
        "link 0->1 20 ms, 10 Mbit/s", "link 0->1 cut", "link 0->1 10 Mbit/s", "link 0->1 restored",
        "slow",
    ]  # fmt: skip
    assert rows[-1] == ("slow", 1, 2.5)


@pytest.mark.alone
def test_a_link_that_is_down_stalls_is_named_and_comes_back() -> None:
    with started(ranks=3, timeout="20 s") as run:
        run.link(0, 1, down=True)
        until(lambda: of(run.events, kind="detect").height, 10, "the stall is named")
        at = run.iteration
        detected = of(run.events, kind="detect")
        assert 0 in detected["peer"].to_list()  # rank 1 waits for rank 0
        assert detected["value"].min() == pytest.approx(1, abs=0.3)
        assert not run.done
        run.link(0, 1, down=False)
        until(lambda: run.iteration > at + 2, what="training goes on")


@pytest.mark.parametrize("how", ["slow", "far", "cut"])
def test_a_link_holds_up_only_messages_that_cross_it(how: str) -> None:
    """A server's link to one worker is bad; the other worker does not notice."""
    link = {
        "slow": wb.Link(bandwidth="4 Mbit/s"), "far": wb.Link(latency="400 ms"), "cut": wb.Link(),
    }[how]  # fmt: skip
    exp = wb.Experiment(
        strategy="parameter_server", task="lenet_digits", ranks=3, iterations=40, batch_size=32,
        options={"consistency": "asp"}, network=wb.Network(links={(0, 1): link}), timeout="20 s",
    )  # fmt: skip
    run = wb.run(exp)
    if how == "cut":
        until(lambda: of(run.events, kind="clock", rank=1).height >= 1, what="a first pull")
        run.link(0, 1, down=True)
    until(lambda: of(run.events, kind="clock", rank=2).height == 40, what="the other worker")
    behind = of(run.events, kind="clock", rank=1).height
    assert behind <= 20 if how == "cut" else behind <= 5
    run.link(0, 1, down=False, latency="0 ms", bandwidth="unlimited")
    assert run.wait(timeout=30).ok and laws.check_events(run.events) == []
    sent = of(run.events, kind="send", rank=0, peer=1, group="default")
    received = of(run.events, kind="recv", rank=1, peer=0, group="default")
    assert sent["nbytes"].sum() == received["nbytes"].sum() > 0
    if how == "slow":  # 4 Mbit/s are 2 us a byte
        slow = sent.filter(pl.col("nbytes") > 100_000)[0]
        assert lasting(slow)[0] >= 0.99 * slow["nbytes"][0] * 2e-3, "sent when it has left the link"
    if how == "far":
        assert received["start_ns"].min() - sent["start_ns"].min() >= 400e6


def test_a_link_cut_at_any_moment_holds_up_nobody_else() -> None:
    """A message of 60 slots is half put when its link is cut: the sender goes on elsewhere."""
    exp = wb.Experiment(
        strategy="parameter_server", task="lenet_digits", ranks=3, iterations=40, batch_size=32,
        options={"consistency": "asp"}, chunk_bytes=4096, timeout="20 s",
        network=wb.Network(links={(0, 1): wb.Link(bandwidth="100 Mbit/s")}),  # 20 ms a message
    )  # fmt: skip
    run = wb.run(exp)
    sent = {"kind": "send", "rank": 0, "peer": 1, "group": "default"}
    until(lambda: of(run.events, **sent).height >= 5, what="its first slots")
    run.link(0, 1, down=True)
    until(lambda: of(run.events, kind="clock", rank=2).height == 40, what="the other worker")
    assert of(run.events, **sent).height % 61 != 0, "cut within a message"
    run.link(0, 1, down=False)
    assert run.wait(timeout=30).ok and laws.check_events(run.events) == []


def test_slots_on_several_paced_links_at_once_do_not_cross_in_a_lane() -> None:
    exp = wb.Experiment(
        strategy="parameter_server", task="lenet_digits", ranks=4, iterations=8, batch_size=32,
        options={"consistency": "asp"}, chunk_bytes=4096,
        network=wb.Network(bandwidth="100 Mbit/s"),
    )  # fmt: skip
    run = wb.run(exp)
    assert run.wait(timeout=60).ok and run.dropped == 0
    assert laws.check_events(run.events) == []
    leaving = of(run.events, kind="send", rank=0, group="default")
    assert leaving["lane"].n_unique() == 3, "three links, three lanes"


@pytest.mark.timing
def test_asking_when_bytes_leave_a_cut_link_does_not_wait() -> None:
    """Whoever moves messages to several peers asks: waiting is for the caller to decide."""
    control = Control.create(2)
    try:
        control.set_link(0, 1, down=True, latency_ns=1_000_000)
        start = time.monotonic_ns()
        pacer = Pacer(control, 0)
        assert pacer.is_cut(1) and not pacer.is_cut(0)
        departs, arrives = pacer.flight(1, 1000, start)
        assert (departs, arrives) == (start, start + 1_000_000)
        assert time.monotonic_ns() - start < 40e6, "less than one look"
    finally:
        control.segment.close()


def test_a_link_that_stays_down_is_an_error_at_timeout() -> None:
    run = wb.run(lenet(iterations=LONG, timeout="2 s"))
    training(run)
    run.link(0, 1, down=True)
    with pytest.raises(wb.RunTimeout, match="rank 0"):
        run.wait(timeout=20)
    assert gone(run.pids.values())


# -- stop --


@pytest.mark.parametrize("strategy", ["sequential", "data_parallel", "ddp"])
def test_stop_ends_all_ranks_after_the_same_iteration(strategy: str) -> None:
    for delay in (0.0, 0.3, 0.31, 0.33):
        run = wb.run(
            lenet(strategy=strategy, ranks=1 if strategy == "sequential" else 3, iterations=LONG)
        )
        if delay:
            training(run)
            time.sleep(delay)
        run.stop()
        result = run.wait(timeout=30)
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
        deadline = time.monotonic() + 10
        while run.iteration < stuck + 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert run.iteration >= stuck + 3


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
