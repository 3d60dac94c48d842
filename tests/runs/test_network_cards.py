"""What links share, network cards and a switch: capacity, incast, and what choosing makes of it.

Capacity cannot be exceeded on a machine however busy: a card's bytes take at least their time.
How near it is to that is judged by ratios, of the fastest of several turns each.
"""

from __future__ import annotations

import multiprocessing
import os
import signal

import polars as pl
import pytest

import workbench as wb
from tests.live import of
from workbench.shared_memory.control_block import SLOW_MOTION, Control
from workbench.shared_memory.network_cards import NetworkCards, set_up_cards

L = 246_824  # bytes of LeNet's parameters
CARD = 20e6 / 8  # bytes per second, each way


def cards(ranks: int, per_host: int) -> tuple[Control, NetworkCards]:
    """Return cards that carry a byte a microsecond, and the block in which they stand."""
    control = Control.create(ranks)
    set_up_cards(control, 1e6, per_host)
    return control, NetworkCards(control)


def test_ranks_of_a_host_share_its_card_and_ranks_inside_it_need_none() -> None:
    _, shared = cards(6, 2)  # hosts {0, 1}, {2, 3}, {4, 5}
    assert shared.reserve(0, 1, 500, 7) == (0, 0), "inside a host"
    assert shared.reserve(0, 2, 500, 0) == (500_000, 500_000)
    assert shared.reserve(1, 4, 100, 0) == (600_000, 600_000), "after the slot of rank 0"
    assert shared.reserve(3, 1, 100, 0) == (100_000, 100_000), "the other direction is free"
    assert shared.reserve(1, 5, 100, 900_000) == (1_000_000, 1_000_000), "idle time is lost"


def test_senders_to_one_card_take_turns() -> None:
    """Incast: each sender's own card has sent its slot at once, the receiver's takes them all."""
    _, shared = cards(4, 1)
    for turn, sender in enumerate((1, 2, 3), start=1):
        assert shared.reserve(sender, 0, 100, 0) == (100_000, turn * 100_000)


def test_all_hosts_take_turns_at_the_switch_between_them() -> None:
    control = Control.create(8)
    set_up_cards(control, float("inf"), 2, 1e6)  # a switch of a byte a microsecond, fast cards
    shared = NetworkCards(control)
    assert shared.reserve(0, 1, 500, 7) == (0, 0), "inside a host"
    assert shared.reserve(0, 2, 500, 0) == (0, 500_000), "the sender goes on, the bytes wait"
    assert shared.reserve(4, 6, 100, 0) == (0, 600_000), "of other hosts, and after them"
    assert shared.reserve(2, 0, 100, 900_000) == (0, 1_000_000), "idle time is lost"
    set_up_cards(control, 2e6, 2, 1e6)
    assert shared.reserve(0, 2, 200, 2_000_000) == (2_100_000, 2_200_000), "card and switch at once"


def test_slow_motion_stretches_cards_and_its_end_frees_them() -> None:
    control, shared = cards(2, 1)
    control.words[SLOW_MOTION] = 100_000  # a hundred times as slow
    assert shared.reserve(0, 1, 100, 0) == (10_000_000, 10_000_000)
    control.words[SLOW_MOTION] = 1000
    assert shared.reserve(0, 1, 100, 0) == (100_000, 100_000)


def die_inside(shared: NetworkCards) -> None:
    shared.lock.acquire(True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_rank_that_is_killed_inside_leaves_a_card_that_works() -> None:
    _, shared = cards(2, 1)
    child = multiprocessing.get_context("fork").Process(target=die_inside, args=(shared,))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert not shared.lock.acquire(False)
    assert shared.reserve(0, 1, 100, 0) == (100_000, 100_000)
    assert shared.lock.acquire(False), "a rank that waited in vain has given it back"


def test_a_rank_that_was_slow_inside_does_not_open_the_lock_for_two() -> None:
    """A rank that waited in vain gives the lock back, and so does its slow owner, later."""
    _, shared = cards(2, 1)
    shared.lock.release()
    shared.reserve(0, 1, 100, 0)
    assert shared.lock.acquire(False) and not shared.lock.acquire(False)


def iteration_ms(workers: int, chunk_bytes: int) -> float:
    """Return the shortest time from an iteration of a worker to its next; check that no card
    carried more than its bandwidth in all of the run.
    """
    exp = wb.Experiment(
        strategy="parameter_server",
        task="lenet_digits",
        ranks=1 + workers,
        iterations=6,
        batch_size=4 * workers,
        threads=1,
        chunk_bytes=chunk_bytes,
        network=wb.Network(nic="20 Mbit/s"),
    )
    run = wb.run(exp)
    assert run.wait(timeout=120).ok
    sends = of(run.events, kind="send", group="default")
    arrivals = of(run.events, kind="recv", group="default")
    window_s = (arrivals["end_ns"].max() - sends["start_ns"].min()) / 1e9
    for direction in ("rank", "peer"):
        through = sends.filter(pl.col(direction) == 0)["nbytes"].sum()
        assert through <= 1.01 * CARD * window_s
    starts = of(run.events, kind="forward", rank=1).sort("iteration")["start_ns"]
    return starts.diff().min() / 1e6


@pytest.mark.alone
def test_an_iteration_at_a_server_grows_with_its_workers() -> None:
    """In slots that take turns all pulls end together, and all pushes come at once: 2W L/B.

    A message of one slot is sent whole; then a worker pushes while the next one pulls: (W+1) L/B.
    """
    whole = L / CARD * 1e3  # ms: L through the card
    slots = {workers: iteration_ms(workers, 16_384) for workers in (1, 4)}
    assert slots[4] == pytest.approx(8 * whole, rel=0.15)
    assert slots[1] >= 0.99 * 2 * whole
    assert slots[4] / slots[1] == pytest.approx(4, rel=0.15)
    one_by_one = iteration_ms(4, 262_144)
    assert one_by_one / slots[4] == pytest.approx(5 / 8, rel=0.15)


@pytest.mark.alone
def test_a_host_s_ranks_share_its_cable() -> None:
    """Two hosts of two ranks: by the butterfly each rank sends L to the other host, 2 L a card; the
    hierarchical way it is L/2 each."""
    shortest = {}
    for way, crossing in (("butterfly", 2 * L), ("hierarchical", L)):
        exp = wb.Experiment(
            strategy="fusion",
            ranks=4,
            iterations=6,
            batch_size=16,
            threads=1,
            all_reduce=way,
            network=wb.Network(levels=(2, 2), nic="20 Mbit/s"),
            chunk_bytes=16_384,
        )
        run = wb.run(exp)
        assert run.wait(timeout=120).ok
        rows = of(run.events, kind="send", group="default").filter(pl.col("rank") < 2)
        out = rows.filter(pl.col("peer") >= 2).group_by("iteration")
        took = out.agg("nbytes", ms=(pl.col("end_ns").max() - pl.col("start_ns").min()) / 1e6)
        assert took["nbytes"].list.sum().to_list() == pytest.approx([crossing] * 6, rel=0.001)
        shortest[way] = took["ms"].min()
        assert shortest[way] >= 0.99 * crossing / CARD * 1e3
    assert shortest["butterfly"] / shortest["hierarchical"] == pytest.approx(2, rel=0.15)


def test_choosing_knows_of_cards() -> None:
    """Eight ranks, each a host with a card: a ring fills all cards, a driver its own only."""
    links = wb.Network(latency="1 us", nic="100 Mbit/s")
    why = wb.why("all_reduce", "4 MiB", 8, links)
    ms = {name: seconds * 1e3 for name, seconds in why.seconds.items()}
    size = 4 * 2**20 / (100e6 / 8) * 1e3
    assert ms["ring"] == pytest.approx(2 * 7 / 8 * size, rel=0.1)
    assert ms["naive"] == pytest.approx(14 * size, rel=0.1)


def test_choosing_knows_of_a_switch() -> None:
    """Eight hosts: at each step of a ring all of them send through the switch."""
    links = wb.Network(latency="1 us", switch="100 Mbit/s")
    why = wb.why("all_reduce", "4 MiB", 8, links)
    size = 4 * 2**20 / (100e6 / 8)
    assert why.seconds["ring"] == pytest.approx(14 * size, rel=0.1)
    assert why.seconds["naive"] == pytest.approx(14 * size, rel=0.1)


@pytest.mark.parametrize(("shared", "words"), [("nic", "network cards"), ("switch", "a switch")])
def test_a_plan_refuses_what_links_share(shared: str, words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        wb.plan("all_reduce", "ring", ranks=4, network=wb.Network(**{shared: "1 Gbit/s"}))


@pytest.mark.alone
def test_hosts_share_an_oversubscribed_switch() -> None:
    """Four hosts in a ring: 2 (n-1) L pass a switch that is as fast as one of their links, where
    links of their own carry 2 (n-1)/n L each."""
    exp = wb.Experiment(
        strategy="fusion", ranks=4, iterations=6, batch_size=16, threads=1, chunk_bytes=16_384
    )
    shortest = {}
    for name, network in {
        "links": wb.Network(bandwidth="20 Mbit/s"),
        "switch": wb.Network(switch="20 Mbit/s"),
    }.items():
        run = wb.run(exp.replace(network=network, all_reduce="ring"))
        assert run.wait(timeout=120).ok
        rows = run.events.filter(pl.col("group") == "default")
        begins = of(rows, kind="send").group_by("iteration").agg(start=pl.col("start_ns").min())
        ends = of(rows, kind="recv").group_by("iteration").agg(end=pl.col("end_ns").max())
        took = begins.join(ends, on="iteration").select(ms=(pl.col("end") - pl.col("start")) / 1e6)
        shortest[name] = took["ms"].min()
    assert shortest["switch"] >= 0.99 * 6 * L / CARD * 1e3
    assert shortest["switch"] / shortest["links"] == pytest.approx(4, rel=0.15)
