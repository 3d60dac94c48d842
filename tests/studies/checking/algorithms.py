"""All-reduces as users write them: some right, most of them wrong in one way each."""

from __future__ import annotations

import os

import torch


def ring(comm, x):
    """As STYLE has it: exchange and add, in plain torch."""
    p, me = comm.size, comm.rank
    left, right = (me - 1) % p, (me + 1) % p
    total = x.clone()
    chunks = total.tensor_split(p)
    for step in range(p - 1):
        give, take = (me - step) % p, (me - step - 1) % p
        arriving = torch.empty_like(chunks[take])
        comm.exchange(chunks[give], to=right, into=arriving, frm=left)
        chunks[take].add_(arriving)
    for step in range(p - 1):
        give, take = (me + 1 - step) % p, (me - step) % p
        comm.exchange(chunks[give], to=right, into=chunks[take], frm=left)
    return total


def with_reduce(comm, x, reduce):
    """A chain up to the last rank and back, told how to combine; it leaves the result in x."""
    p, me = comm.size, comm.rank
    if me > 0:
        comm.recv(x, frm=me - 1, reduce=reduce)
    if me < p - 1:
        comm.send(x, to=me + 1)
        comm.recv(x, frm=me + 1)
    if me > 0:
        comm.send(x, to=me - 1)


def all_peers(comm, x):
    """Whole tensors to all, added in another order on each rank."""
    p, me = comm.size, comm.rank
    total = x.clone()
    for d in range(1, p):
        got = torch.empty_like(x)
        comm.exchange(x, to=(me + d) % p, into=got, frm=(me - d) % p)
        total += got
    return total


def whole_ring(comm, x):
    """The famous wrong one: right sums, whole tensors; and it counts on slots."""
    p, me = comm.size, comm.rank
    total, moving = x.clone(), x.clone()
    for _ in range(p - 1):
        comm.send(moving, to=(me + 1) % p)
        comm.recv(moving, frm=(me - 1) % p)
        total += moving
    return total


def receives_first(comm, x):
    p, me = comm.size, comm.rank
    got = torch.empty_like(x)
    if p > 1:
        comm.recv(got, frm=(me - 1) % p)
        comm.send(x, to=(me + 1) % p)
    return x


def waits_for_one_that_returned(comm, x):
    if comm.size > 1 and comm.rank == 0:
        comm.recv(x, frm=1)
    return x


def waits_for_anyone(comm, x):
    if comm.size > 1:
        comm.recv(x, frm=None)
    return x


def doubles(comm, x):
    """A ring that adds a chunk twice at its last step, on rank 1."""
    p, me = comm.size, comm.rank
    left, right = (me - 1) % p, (me + 1) % p
    total = x.clone()
    chunks = total.tensor_split(p)
    for step in range(p - 1):
        give, take = (me - step) % p, (me - step - 1) % p
        arriving = torch.empty_like(chunks[take])
        comm.exchange(chunks[give], to=right, into=arriving, frm=left)
        chunks[take].add_(arriving)
        if step == p - 2 and me == 1:
            chunks[take].add_(arriving)
    for step in range(p - 1):
        give, take = (me + 1 - step) % p, (me - step) % p
        comm.exchange(chunks[give], to=right, into=chunks[take], frm=left)
    return total


def forgets_the_last(comm, x):
    """The sum of all but the last rank's."""
    p, me = comm.size, comm.rank
    if me == 0:
        for peer in range(1, p - 1):
            comm.recv(x, frm=peer, reduce="SUM")
        for peer in range(1, p):
            comm.send(x, to=peer)
    else:
        if me < p - 1:
            comm.send(x, to=0)
        comm.recv(x, frm=0)


def sends_too_much(comm, x):
    total = all_peers(comm, x)
    if comm.rank == 0 and comm.size > 2:
        comm.send(x[:1], to=2)  # no rank asked for it
    return total


def wrong_shape(comm, x):
    total = all_peers(comm, x)
    return total[:-1] if comm.rank == comm.size - 1 else total


def on_another_device(comm, x):
    total = all_peers(comm, x)
    return total.to("meta") if comm.rank == 1 else total


def writes_behind(comm, x):
    n = len(x)
    total = all_peers(comm, x)
    if comm.rank == 1:
        torch.as_strided(x, (n + 2,), (1,))[n:] = 0
    return total


def loops(comm, x):
    turns = 0
    while comm.rank == 0 and comm.size > 1:
        turns += 1
    if comm.size > 1:
        comm.recv(x, frm=0)
    return x


def prints(comm, x):
    for _ in range(64):
        print("noise " * 2**20)
    return all_peers(comm, x)


def raises(comm, x):
    if comm.rank == 1:
        raise ValueError("this rank does not like sums")
    return all_peers(comm, x)


def dies(comm, x):
    if comm.rank == 1:
        os._exit(3)
    return all_peers(comm, x)


def no_such_rank(comm, x):
    if comm.size > 1:
        comm.send(x, to=comm.rank + 1)
    return x


def to_itself(comm, x):
    if comm.size > 1:
        comm.send(x, to=comm.rank)
    return x


def sends_numbers(comm, x):
    if comm.size > 1:
        comm.send([1.0, 2.0], to=1 - comm.rank)
    return x


def everything_twice(comm, x, into, sends, receives):
    """An all-to-all, and the same again."""
    p, me = comm.size, comm.rank
    out, coming = x.split(sends), into.split(receives)
    coming[me].copy_(out[me])
    for d in range(1, p):
        to, frm = (me + d) % p, (me - d) % p
        for _ in range(2):
            comm.exchange(out[to], to=to, into=coming[frm], frm=frm)


def in_float32(comm, x):
    """Every part is in, but integers are added as float32."""
    p, me = comm.size, comm.rank
    total = x.to(torch.float32, copy=True)
    for d in range(1, p):
        got = torch.empty_like(x)
        comm.exchange(x, to=(me + d) % p, into=got, frm=(me - d) % p)
        total += got.to(torch.float32)
    return total.to(x.dtype)


def not_turned(comm, x, into):
    """An all-gather that leaves the parts in the order in which they came, its own first."""
    p, me = comm.size, comm.rank
    parts = into.view(p, -1)
    parts[0] = x
    for d in range(1, p):
        comm.exchange(x, to=(me - d) % p, into=parts[d], frm=(me + d) % p)
