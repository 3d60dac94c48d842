"""Messages that their receiver reads in the sender's memory: values, order, completion, rows, and
what becomes of the memory.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.processes import values
from workbench.common.errors import WorkbenchError
from workbench.laws import check_events
from workbench.transports.in_place import KEPT, LEAST, MOST, Borrower, Lender, LentMemory
from workbench.transports.mailbox import SLOTS

N = LEAST // 4  # the fewest float32 that are read in place


def _lender() -> Lender:
    return dist.group.WORLD.context.session.lender  # type: ignore[no-any-return, union-attr]


def _lent(elements: int, value: float) -> torch.Tensor:
    return _lender().empty_like(torch.empty(elements)).fill_(value)


def _messages(rank: int, n: int) -> list[Any]:
    """Send from rank 0 to rank 1: one that waits, one that comes early, with tags, in part."""
    if rank == 0:
        whole = _lent(4 * N, 1.0)
        first = dist.isend(whole, 1)
        assert first is not None
        dist.barrier()  # rank 1 has asked for nothing yet
        waits = not first.is_completed()
        dist.barrier()
        dist.send(torch.zeros(3), 1, tag=7)  # the one before it comes early, and is taken
        first.wait()
        whole.fill_(2.0)
        works = [dist.isend(whole[N:], 1, tag=5), dist.isend(_lent(N, 3.0), 1, tag=6)]
        works += [dist.isend(_lent(N - 1, 4.0), 1, tag=8)]  # too small: through slots
        for work in works:
            assert work is not None
            work.wait()
        for i in range(2 * KEPT):  # descriptors and addresses are used again
            dist.send(_lent(N, 10.0 + i), 1)
        return [waits]
    for _ in range(2):
        dist.barrier()
    small, got = torch.ones(3), []
    dist.recv(small, 0, tag=7)
    into = torch.empty(4 * N)
    dist.recv(into, 0)
    got.append(bool((small == 0).all() and (into == 1).all()))
    for elements, tag, value in ((N, 6, 3.0), (3 * N, 5, 2.0), (N - 1, 8, 4.0)):
        into = torch.empty(elements)
        dist.recv(into, 0, tag=tag)
        got.append(bool((into == value).all()))
    for i in range(2 * KEPT):
        into = torch.empty(N)
        dist.recv(into, 0)
        got.append(bool((into == 10.0 + i).all()))
    return got


@pytest.mark.parametrize("hosts", [1, 2])
def test_messages_arrive_whole_and_in_order(hosts: int, tmp_path: Path) -> None:
    env = {"WORKBENCH_TRACE": str(tmp_path)}
    waits, got = values(_messages, 2, env=lambda r: env | {"WORKBENCH_HOST": f"h{r % hosts}"})
    assert all(got) and (waits == [True] or hosts == 2)
    events = wb.load(tmp_path).events
    assert check_events(events) == []
    rows = events.filter(pl.col("collective") == "p2p", pl.col("kind").is_in(["send", "recv"]))
    in_place = rows.filter(pl.col("phase") == "in place").group_by("kind")
    counted = dict(in_place.agg(pl.col("nbytes").sort()).iter_rows())
    asked_for = [4 * N] * (1 + 2 * KEPT)  # the others came early: into a buffer, and from there
    expected = {"send": [*asked_for, 12 * N, 16 * N], "recv": asked_for}
    assert counted == ({} if hosts == 2 else expected)
    assert rows.group_by("kind").agg(pl.col("nbytes").sum())["nbytes"].n_unique() == 1
    if hosts == 1:  # a wait for the receiver is one for it, not for room
        assert "not taken yet" in rows["name"].to_list() + events["name"].to_list()


def _staying(rank: int, n: int) -> list[Any]:
    """Receive messages where they lie: the sender is done once each is given back."""
    group: Any = dist.group.WORLD
    if rank == 0:
        whole, seen = _lent(4 * N, 1.0), []
        for i in range(3 * SLOTS):
            whole.fill_(float(i))
            work: Any = dist.isend(whole, 1)
            dist.barrier()  # it has been read
            seen.append(work.is_completed())
            dist.barrier()  # and is given back from now on
            work.wait()
        dist.send(_lent(N - 1, 7.0), 1)  # too small: through slots
        dist.send(whole, 1)  # early: it is in a buffer before it is asked for
        dist.send(torch.zeros(1), 1, tag=3)
        return seen
    room, got = torch.full((4 * N,), -1.0), []
    for i in range(3 * SLOTS):
        work = group.recv([room], 0, 0, stays=True)
        work.wait()
        got.append(bool((work.arrived == i).all() and (room == -1).all()))
        for _ in range(2):
            dist.barrier()
        work.give_back()
    small = torch.empty(N - 1)
    work = group.recv([small], 0, 0, stays=True)
    work.wait()
    got.append(work.arrived is small and bool((small == 7).all()))
    dist.recv(torch.empty(1), 0, tag=3)
    work = group.recv([room], 0, 0, stays=True)
    work.wait()
    got.append(work.arrived is room and bool((room == 3 * SLOTS - 1).all()))
    work.give_back()  # nothing: it is not in the sender's memory
    return got


@pytest.mark.parametrize("mover", ["c", "python"])
def test_a_message_may_stay_where_it_is_until_it_is_given_back(mover: str, tmp_path: Path) -> None:
    env = {"WORKBENCH_TRACE": str(tmp_path), "WORKBENCH_MOVER": mover}
    seen, got = values(_staying, 2, env=lambda rank: env)
    assert seen == [False] * (3 * SLOTS) and got == [True] * (3 * SLOTS + 2)
    assert check_events(wb.load(tmp_path).events) == []


def _inode(fd: int) -> int:
    """Return the inode of an open descriptor; 0: it is closed."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return 0


def test_memory_goes_with_the_tensor_and_its_views() -> None:
    lender = Lender()
    whole = lender.empty_like(torch.empty(2 * N))
    part, other = whole[N:], torch.empty(2 * N)
    assert lender.place(whole) is not None and lender.place(other) is None
    place = lender.place(part)
    assert place is not None and place.offset == 4 * N
    assert lender.place(whole[1:8]) is None  # too small
    del whole
    gc.collect()
    assert lender.place(part) == place
    assert _inode(place.fd) == place.inode
    del part
    gc.collect()
    assert _inode(place.fd) != place.inode


def test_a_place_that_is_none_is_refused() -> None:
    lender = Lender()
    tensor = lender.empty_like(torch.empty(N)).fill_(5.0)
    place, borrower = lender.place(tensor), Borrower(os.getpid())
    assert place is not None
    assert (borrower.read(place, 4 * N).bytes.view("float32") == 5.0).all()
    for offset, nbytes in ((-1, 8), (0, 4 * N + 1), (4 * N, 1), (1 << 62, 8)):
        with pytest.raises(WorkbenchError, match="begins at byte"):
            borrower.read(place._replace(offset=offset), nbytes)
    with pytest.raises(ValueError, match="read-only"):
        borrower.read(place, 8).bytes[0] = 1
    with pytest.raises(OSError, match="another one by now"):
        borrower.read(LentMemory(place.fd, place.inode + 1, 0), 8)
    with open(os.devnull) as file, pytest.raises(OSError):
        borrower.read(LentMemory(file.fileno(), os.fstat(file.fileno()).st_ino, 0), 8)
    with pytest.raises(OSError):
        borrower.read(LentMemory(1 << 20, 1, 0), 8)


def test_a_place_that_comes_again_has_the_same_tensor() -> None:
    lender = Lender()
    tensor = lender.empty_like(torch.empty(2 * N)).fill_(5.0)
    whole, part, borrower = lender.place(tensor), lender.place(tensor[N:]), Borrower(os.getpid())
    assert whole is not None and part is not None
    first = borrower.read(whole, 8 * N).tensor(torch.float32)
    assert borrower.read(whole, 8 * N).tensor(torch.float32) is first
    tensor[N:] = 7.0  # its sender writes there again, once it was given back
    assert first[0] == 5 and first[N] == 7
    assert (borrower.read(part, 4 * N).tensor(torch.float32) == 7).all()
    assert len(borrower.read(whole, 4 * N).tensor(torch.float32)) == N
    assert borrower.read(whole, 8 * N).tensor(torch.int32).dtype == torch.int32
    for i in range(2 * MOST):  # what is remembered does not grow without end
        borrower.read(whole._replace(offset=4 * i), 8)
    assert len(borrower._messages) <= MOST
    assert torch.equal(borrower.read(whole, 8 * N).tensor(torch.float32), first)
