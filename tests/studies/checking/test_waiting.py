"""Waits of ranks for each other: which sets of waits can never end, and when two looks prove it."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from workbench.studies.checking.waiting import ANY, Wait, deadlocked_ranks, stuck_ranks, wait_cycle


def waits(**peers: int) -> dict[int, Wait]:
    """``r0=1``: rank 0 waits for rank 1."""
    return {int(rank[1:]): Wait(since=5, looked=10, peer=peer) for rank, peer in peers.items()}


def test_a_cycle_is_stuck_and_so_are_those_that_wait_for_it() -> None:
    four_waits = waits(r0=1, r1=2, r2=0, r3=0)
    assert stuck_ranks(four_waits, 5, ()) == {0, 1, 2, 3}
    assert wait_cycle(four_waits, {0, 1, 2, 3}) == (0, 1, 2)


def test_a_rank_that_waits_for_one_that_works_is_not_stuck() -> None:
    assert stuck_ranks(waits(r0=1, r1=2), 3, ()) == set()
    assert stuck_ranks(waits(r0=1, r1=2), 3, {2}) == {0, 1}
    assert wait_cycle(waits(r0=1, r1=2), {0, 1}) == ()


def test_a_wait_for_anyone_ends_if_anyone_can_still_send() -> None:
    assert stuck_ranks(waits(r0=ANY, r1=0), 3, ()) == set()
    assert stuck_ranks(waits(r0=ANY, r1=0), 3, {2}) == {0, 1}
    assert stuck_ranks(waits(r0=ANY), 1, ()) == {0}, "none is left but itself"


@given(st.integers(2, 5).flatmap(lambda n: st.tuples(st.just(n), st.data())))
def test_exactly_those_are_stuck_that_no_order_of_events_lets_go(case: tuple) -> None:
    n, data = case
    state = [data.draw(st.sampled_from(["works", "done", *range(-1, n)])) for _ in range(n)]
    by_rank = {r: Wait(0, 1, peer) for r, peer in enumerate(state) if isinstance(peer, int)}
    by_rank = {r: wait for r, wait in by_rank.items() if wait.peer != r}
    done = {r for r, one in enumerate(state) if one == "done"}
    free = {r for r in range(n) if r not in by_rank and r not in done}
    for _ in range(n):  # a free rank may release those that wait for it
        for r, by in product(range(n), range(n)):
            if r in by_rank and by != r and by in free and by_rank[r].peer in (by, ANY):
                free.add(r)
    assert stuck_ranks(by_rank, n, done) == set(by_rank) - free


def test_one_look_proves_nothing_and_neither_do_two_of_different_waits() -> None:
    before = waits(r0=1, r1=0)
    again = {rank: Wait(5, 30, wait.peer) for rank, wait in before.items()}
    assert deadlocked_ranks(before, 20, again, 2, ()) == {0, 1}
    assert deadlocked_ranks(before, 20, before, 2, ()) == set(), "no rank has looked since"
    later = {0: again[0], 1: Wait(25, 30, 0)}  # rank 1 is in another wait than before
    assert deadlocked_ranks(before, 20, later, 2, ()) == set()
