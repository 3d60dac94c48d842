"""Answers to the exercises of chapter 14."""

from workbench.collectives.all_reduce_rabenseifner import all_reduce as rabenseifner


def ring(comm, x):
    p, me = comm.size, comm.rank
    right, left = (me + 1) % p, (me - 1) % p
    chunks = comm.split(x)
    for k in range(p - 1):
        give, take = (me - k) % p, (me - k - 1) % p
        comm.exchange(chunks[give], to=right, into=chunks[take], frm=left, reduce="SUM")
    for k in range(p - 1):
        give, take = (me + 1 - k) % p, (me - k) % p
        comm.exchange(chunks[give], to=right, into=chunks[take], frm=left)


def unfinished(comm, x):
    p, me = comm.size, comm.rank
    right, left = (me + 1) % p, (me - 1) % p
    chunks = comm.split(x)
    for k in range(p - 1):
        give, take = (me - k) % p, (me - k - 1) % p
        comm.exchange(chunks[give], to=right, into=chunks[take], frm=left, reduce="SUM")


def driver(comm, x):
    if comm.rank:
        comm.send(x, to=0)
        comm.recv(x, frm=0)
        return
    for peer in range(1, comm.size):
        comm.recv(x, frm=peer, reduce="SUM")
    for peer in range(1, comm.size):
        comm.send(x, to=peer)


ANSWERS = {"14.1": (ring, unfinished, driver), "14.2": (rabenseifner, ring, driver)}
