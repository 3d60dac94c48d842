"""What a walk says is what theory says and what real ranks do, slot by slot."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.processes import values
from workbench.choosing.choose import candidates
from workbench.choosing.predict import function_of
from workbench.collectives import OPERATIONS, algorithms
from workbench.common.errors import CollectiveError
from workbench.theory import cost_model
from workbench.theory.walk import COMBINE, RECV, RELAY, ROOTED, SEND, Move, walk

SLOT = 4096
EVERY = [(operation, name) for operation in OPERATIONS for name in algorithms(operation)]


@pytest.mark.parametrize(("operation", "name"), EVERY)
def test_what_is_sent_is_what_theory_says(operation: str, name: str) -> None:
    for n in range(2, 9):
        if name not in candidates(operation, n) or name not in cost_model.OPERATIONS[operation]:
            continue
        nbytes = 4 * 840 * n  # whole chunks, however they are cut
        root = n - 1 if operation in ROOTED else 0
        moves = walk(operation, function_of(operation, name), n, nbytes, SLOT, root)
        sent = tuple(sum(move.nbytes for move in own if move.to >= 0) for own in moves)
        predicted = cost_model.bytes_sent(name, n, nbytes, operation=operation, root=root)
        assert sent == predicted or operation == "barrier", n


@pytest.mark.parametrize(("operation", "name"), EVERY)
@pytest.mark.parametrize(("n", "nbytes"), [(2, 1 << 24), (3, 64), (5, 3 * SLOT), (8, 40 * SLOT)])
def test_every_slot_that_is_sent_is_received(
    operation: str, name: str, n: int, nbytes: int
) -> None:
    if name not in candidates(operation, n):
        pytest.skip("does not take so many ranks")
    moves = walk(operation, function_of(operation, name), n, nbytes, max(SLOT, nbytes // 64), n - 1)
    sent_bytes: Counter[tuple[int, int]] = Counter()
    received_bytes: Counter[tuple[int, int]] = Counter()
    for rank, own in enumerate(moves):
        for move in own:
            if move.kind in (SEND, RELAY):
                sent_bytes[rank, move.to] += move.nbytes
            if move.kind in (RECV, RELAY):
                received_bytes[move.frm, rank] += move.nbytes
    assert sent_bytes == received_bytes
    assert sent_bytes  # no rank is idle throughout


def test_sizes_are_scaled_and_not_lost() -> None:
    ring = function_of("all_reduce", "ring")
    for nbytes in (1 << 20, 1 << 26):
        moves = walk("all_reduce", ring, 4, nbytes, 1 << 18)
        assert sum(move.nbytes for move in moves[0] if move.to >= 0) == nbytes * 3 // 2
        assert max(move.nbytes for move in moves[0]) == 1 << 18


PYTHON = {"WORKBENCH_MOVER": "python"}  # whose moves of a slot can be listened to


def _sends(rank: int, size: int) -> dict[str, list[list[int]]]:
    """Of real all-reduces: what this rank's transport was given, slot by slot."""
    import numpy as np
    import torch.distributed as dist

    from workbench.messaging.fingerprint import signature
    from workbench.recording.events import NOWHERE

    comm = dist.distributed_c10d._get_default_group().comm
    sends: dict[str, list[list[int]]] = {}
    put, pass_on = comm.slots.put, comm.slots.pass_on
    for op, name in enumerate(candidates("all_reduce", size)):
        rows = sends[name] = []

        def noted(message, rows=rows):  # type: ignore[no-untyped-def]
            rows.append([message.peer, message.x.nbytes])
            return put(message)

        def relayed(message, to, *how, rows=rows):  # type: ignore[no-untyped-def]
            rows.append([to, message.x.nbytes])
            return pass_on(message, to, *how)

        comm.slots.put, comm.slots.pass_on = noted, relayed
        x = np.ones(10 * SLOT // 4 + 3, np.float32)
        import torch

        comm.begin("all_reduce", name, op, signature("all_reduce", torch.float32, len(x)), NOWHERE)
        function_of("all_reduce", name)(comm, x)
        assert (x == size).all()
    del comm.slots.put, comm.slots.pass_on
    return sends


@pytest.mark.parametrize("n", [2, 3])
def test_a_walk_moves_what_real_ranks_move(n: int) -> None:
    sends = values(_sends, n, env={"WORKBENCH_CHUNK": str(SLOT)} | PYTHON)
    for name in candidates("all_reduce", n):
        moves = walk("all_reduce", function_of("all_reduce", name), n, 10 * SLOT + 12, SLOT)
        for rank in range(n):
            walked = [[move.to, move.nbytes] for move in moves[rank] if move.to >= 0]
            assert sends[rank][name] == walked, name


def test_one_that_waits_for_whichever_comes_first_cannot_be_walked_through() -> None:
    def from_any(comm, x):  # type: ignore[no-untyped-def]
        if comm.rank == 0:
            comm.recv(x, frm=None)
        else:
            comm.send(x, to=0)

    with pytest.raises(CollectiveError, match="which slot comes first"):
        walk("all_reduce", from_any, 2, 64, SLOT)


def test_adding_ones_own_is_a_move_too() -> None:
    moves = walk("all_reduce", function_of("all_reduce", "one_shot"), 2, 64, SLOT)
    assert moves[1].count(Move(COMBINE, -1, -1, 64, True)) == 1
