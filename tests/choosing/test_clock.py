"""Clocks worked out by hand: what moves cost, links, full mailboxes, cores."""

from __future__ import annotations

import pytest

from workbench.choosing.choose import candidates
from workbench.choosing.clock import Time, replay
from workbench.choosing.costs import Links, Machine
from workbench.choosing.predict import function_of
from workbench.common.errors import CollectiveError
from workbench.theory import cost_model
from workbench.theory.walk import COMBINE, RECV, RELAY, SEND, Move, walk
from workbench.transports.mailbox import SLOTS

COST = Machine(alpha_s=100, overhead_s=10, beta_s_per_byte=2, gamma_s_per_byte=5)


def send(to: int, nbytes: int) -> Move:
    return Move(SEND, -1, to, nbytes)


def recv(frm: int, nbytes: int, adds: bool = False) -> Move:
    return Move(RECV, frm, -1, nbytes, adds)


def test_a_message_costs_both_its_ends_and_a_wait() -> None:
    # 10 + 3·2/2 to send, 100 until it is seen, 10 + 3·2/2 + 3·5 to add
    elapsed = replay([[send(1, 3)], [recv(0, 3, adds=True)]], COST)
    assert elapsed == Time(10 + 3 + 100 + 10 + 3 + 15, waits=1, ends=2, sent=3, added=3)


def test_the_parts_make_up_the_seconds() -> None:
    for name in candidates("all_reduce", 4):
        moves = walk("all_reduce", function_of("all_reduce", name), 4, 1 << 16, 4096)
        for cores in (2, 8):
            seconds, waits, ends, sent, added = replay(moves, COST, cores=cores)
            assert seconds == pytest.approx(100 * waits + 10 * ends + 2 * sent + 5 * added)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("name", ["ring", "tree", "butterfly", "rabenseifner", "hierarchical"])
def test_where_only_waiting_costs_an_algorithm_takes_its_steps(name: str, n: int) -> None:
    moves = walk("all_reduce", function_of("all_reduce", name), n, 64 * n, 4096)
    assert replay(moves, Machine(1, 0, 0, 0)).seconds == cost_model.steps(name, n)


def test_a_relay_is_one_pass_unless_it_keeps() -> None:
    def through(relay: Move) -> float:
        return replay([[send(1, 4)], [relay], [recv(1, 4)]], COST).seconds

    once = through(Move(RELAY, 0, 2, 4, adds=True))
    assert through(Move(RELAY, 0, 2, 4, adds=True, copies=True)) == once + 4 * 2 / 2
    assert through(Move(RELAY, 0, 2, 4, copies=True)) == once + 4 * 2 / 2 - 4 * 5


def test_links_are_as_they_are_paced() -> None:
    quick = Machine(0, 0, 0, 0)
    links = Links(latency_s=1.0, s_per_byte=0.1)
    # two slots one behind the other on a link: departures at 1.0 and 2.0, arrivals one second later
    assert replay([[send(1, 10)] * 2, [recv(0, 10)] * 2], quick, links).seconds == 3.0
    # two links of one rank: its second send begins when the first has left
    three = [[send(1, 10), send(2, 10)], [recv(0, 10)], [recv(0, 10)]]
    assert replay(three, quick, links).seconds == 3.0
    slow = Links(latency_s=1.0, s_per_byte=0.1, pairs=((0, 2, 5.0, 0.2),))
    assert replay(three, quick, slow).seconds == 1.0 + 2.0 + 5.0
    late = Machine(0, 0, 0, 0, wake_s=0.25)  # the sender wakes late, and the receiver
    assert replay([[send(1, 10)], [recv(0, 10)]], late, links).seconds == 2.25


def test_a_full_mailbox_holds_its_sender() -> None:
    takes_long = [Move(COMBINE, -1, -1, 1000, True)]  # 5,000 s before it looks
    few = [[send(1, 0)] * SLOTS, takes_long + [recv(0, 0)] * SLOTS]
    more = [[send(1, 0)] * (SLOTS + 1), takes_long + [recv(0, 0)] * (SLOTS + 1)]
    alone = [own[:SLOTS] if rank == 0 else own for rank, own in enumerate(few)]
    assert replay(few, COST).seconds == replay(alone, COST).seconds == 5000 + SLOTS * 10
    # its last send waits for the first slot to be taken: 5,000 + 10, then 10, 100, and 10
    assert replay(more, COST).seconds == 5000 + 10 + 10 + 100 + 10


def test_few_cores_are_shared() -> None:
    own = [[Move(COMBINE, -1, -1, 10, True)]] * 4
    assert [replay(own, COST, cores=cores).seconds for cores in (1, 2, 4)] == [200, 100, 50]


def test_ranks_that_wait_for_each_other_are_named() -> None:
    with pytest.raises(CollectiveError, match="rank 0 for rank 1, rank 1 for rank 0"):
        replay([[recv(1, 4), send(1, 4)], [recv(0, 4), send(0, 4)]], COST)


def test_links_of_a_group_are_numbered_as_the_group_does() -> None:
    links = Links(1.0, 0.1, ((0, 3, 5.0, 0.0), (1, 2, 7.0, 0.0)))
    assert links.among([3, 0]) == Links(1.0, 0.1, ((1, 0, 5.0, 0.0),))
