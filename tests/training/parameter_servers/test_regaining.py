"""The plan after a loss gives every key one owner, and the updates of the same iterations."""

from __future__ import annotations

import random
from typing import Any

import pytest

from workbench.training.parameter_servers.placement import place, place_living
from workbench.training.parameter_servers.regaining import Piece, Plan, make_plan

KEYS = 997


def pieces_of(draw: random.Random, servers: int, lost: set[int], replicas: int) -> list[Piece]:
    """Return what the living ranks offer after training in lockstep: each server has done 7 or 8
    iterations, a copy has what its owner has, or one less.
    """
    result = []
    numbers = dict.fromkeys(range(servers), 0)
    for server, ranges in enumerate(place(KEYS, servers)):
        clock = draw.choice([7, 8])
        for ahead in range(replicas):
            rank = (server + ahead) % servers
            own = clock if not ahead else draw.choice([7, clock])
            if rank not in lost:
                each = tuple((one.start, one.stop) for one in ranges)
                kind: Any = "replica" if ahead else "own"
                clocks = dict.fromkeys((8, 9), own)
                result.append(
                    Piece(rank, kind, server, numbers[rank], 0, own, each, clocks, undoes=own == 8)
                )
                numbers[rank] += 1
    return result


def assert_whole(plan: Plan, owned: dict[int, list[range]]) -> None:
    """Assert that each key is taken once, by its owner, from a piece that has it."""
    owners: dict[int, int] = {}
    for take in plan.takes:
        for start, stop in take.ranges:
            for key in range(start, stop):
                assert key not in owners
                owners[key] = take.owner
                if take.piece is not None:
                    assert any(a <= key < b for a, b in take.piece.ranges)
    assert owners == {key: owner for owner, each in owned.items() for one in each for key in one}


@pytest.mark.parametrize("seed", range(40))
def test_every_key_has_one_owner_and_the_same_updates(seed: int) -> None:
    draw = random.Random(seed)
    servers = draw.randrange(2, 6)
    replicas = draw.randrange(2, servers + 1)
    lost = {(draw.randrange(servers) + i) % servers for i in range(draw.randrange(1, replicas))}
    living = [server for server in range(servers) if server not in lost]
    goes_on = draw.choice([living, list(range(servers))])  # shrink, replace
    owned = dict(zip(goes_on, place_living(KEYS, servers, "even", goes_on), strict=True))
    pieces = pieces_of(draw, servers, lost, replicas)
    plan = make_plan(owned, pieces, {8: 7, 9: 8}, synchronous=True, otherwise="pull")
    assert_whole(plan, owned)
    (iteration,) = set(plan.go_on.values())
    for take in plan.takes:
        assert take.piece is not None and take.piece.slowest - take.back == iteration
        assert take.piece.undoes or not take.back
        if take.piece.of in living and take.owner == take.piece.of and take.kind == "own":
            assert take.piece.rank == take.owner, "what a server has stays there"
    assert plan.version == iteration


@pytest.mark.parametrize("otherwise", ["pull", "checkpoint"])
def test_keys_that_no_server_has_come_from_elsewhere(otherwise: Any) -> None:
    ranges = [tuple((one.start, one.stop) for one in each) for each in place(KEYS, 2)]
    clock = {2: 5, 3: 4}
    pieces = [
        Piece(0, "own", 0, 0, 0, 9, ranges[0], clock),
        Piece(2, "pull", 0, 0, 0, 8, ranges[0], {2: 4, 3: 4}),
        Piece(2, "pull", 1, 1, 0, 7, ranges[1], {2: 4, 3: 3}),
        Piece(3, "pull", 1, 1, 0, 8, ranges[1], {2: 4, 3: 4}),
    ]
    owned = {0: place(KEYS, 1)[0]}
    plan = make_plan(owned, pieces, {2: 5, 3: 4}, synchronous=False, otherwise=otherwise)
    assert_whole(plan, owned)
    (restored,) = plan.restored
    assert restored.ranges == ranges[1] and restored.kind == otherwise
    assert (restored.piece is None) == (otherwise == "checkpoint")
    if restored.piece is not None:
        assert restored.piece.rank == 3, "the newest pull"
    assert plan.go_on == clock and plan.clock_of(restored) == clock
    assert plan.updates_lost(restored, 3) == (1 if otherwise == "pull" else 3)


def test_a_push_that_only_some_keys_have_is_done_again_for_the_others() -> None:
    halves = [tuple((one.start, one.stop) for one in each) for each in place(KEYS, 2)]
    pieces = [
        Piece(0, "own", 0, 0, 0, 9, halves[0], {2: 5, 3: 4}),
        Piece(0, "replica", 1, 1, 0, 8, halves[1], {2: 4, 3: 4}),
    ]
    plan = make_plan(
        {0: place(KEYS, 1)[0]}, pieces, {2: 5, 3: 4}, synchronous=False, otherwise="pull"
    )
    assert plan.go_on == {2: 4, 3: 4}
    assert [plan.clock_of(take) for take in plan.takes] == [{2: 5, 3: 4}, {2: 4, 3: 4}]


def test_pieces_travel_as_json() -> None:
    import json

    piece = Piece(0, "replica", 1, 2, 3, 4, ((0, 5), (7, 9)), {2: 5}, undoes=True)
    assert Piece.from_fields(json.loads(json.dumps(piece.as_fields()))) == piece
