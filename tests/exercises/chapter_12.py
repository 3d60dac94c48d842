"""Answers to the exercises of chapter 12."""

import torch
import torch.distributed as dist


def swap(mine, rank, size):
    got = torch.zeros(size)
    got[rank] = mine[rank]
    others = [r for r in range(size) if r != rank]
    works = [dist.irecv(got[r : r + 1], src=r) for r in others]
    works += [dist.isend(mine[r : r + 1].clone(), dst=r) for r in others]
    for work in works:
        work.wait()
    return got


def kept(mine, rank, size):
    return mine


def ready_made(mine, rank, size):
    got = torch.empty(size)
    dist.all_to_all_single(got, mine)
    return got


def ring(x, rank, size):
    chunks = [c.clone() for c in x.chunk(size)]
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(2 * (size - 1)):
        adding = step < size - 1
        give = (rank - step + (0 if adding else size)) % size
        take = (give - 1) % size
        arrived = torch.empty_like(chunks[take])
        works = [dist.irecv(arrived, src=left), dist.isend(chunks[give], dst=right)]
        for work in works:
            work.wait()
        chunks[take] = chunks[take] + arrived if adding else arrived
    return torch.cat(chunks)


def around(x, rank, size):
    total, passing = x.clone(), x.clone()
    for _ in range(size - 1):
        arrived = torch.empty_like(x)
        works = [
            dist.irecv(arrived, src=(rank - 1) % size),
            dist.isend(passing, dst=(rank + 1) % size),
        ]
        for work in works:
            work.wait()
        total, passing = total + arrived, arrived
    return total


def listening_first(x, rank, size):
    dist.recv(x, src=(rank - 1) % size)
    dist.send(x, dst=(rank + 1) % size)
    return x


def barrier(rank, size):
    word = torch.zeros(1)
    if rank:
        dist.send(word, dst=0)
        dist.recv(word, src=0)
        return
    for other in range(1, size):
        dist.recv(word, src=other)
    for other in range(1, size):
        dist.send(word, dst=other)


def neighbors(rank, size):
    word = torch.zeros(1)
    work = dist.isend(word, dst=(rank + 1) % size)
    dist.recv(torch.zeros(1), src=(rank - 1) % size)
    work.wait()


def ready_made_barrier(rank, size):
    dist.barrier()


def broadcast(x, rank, size):
    reach = 1
    while reach < size:
        if rank < reach and rank + reach < size:
            dist.send(x, dst=rank + reach)
        elif reach <= rank < 2 * reach:
            dist.recv(x, src=rank - reach)
        reach *= 2
    return x


def flat(x, rank, size):
    if rank:
        dist.recv(x, src=0)
        return x
    for other in range(1, size):
        dist.send(x, dst=other)
    return x


def nothing(x, rank, size):
    return x


ANSWERS = {
    "12.1": (swap, kept, ready_made),
    "12.2": (ring, around, listening_first),
    "12.3": (barrier, neighbors, ready_made_barrier),
    "12.4": (broadcast, flat, nothing),
}
