"""Exercises of chapter 12: messages and collectives, in plain ``torch.distributed``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from workbench.exercises.answers import function
from workbench.exercises.exercise import Exercise
from workbench.exercises.on_ranks import called
from workbench.exercises.verdict import Finding, at_least, at_most, equal

BY_HAND = "Only messages between two ranks: isend, irecv, send, recv."


def transposed(f: Callable[..., Any]) -> list[Finding]:
    """Judge an all-to-all by what every rank has, and by its messages."""
    call = "f(torch.arange(float(size)) + 10 * rank, rank, size).tolist()"
    findings = []
    for size in (2, 4):
        values, sends = called(f, size, call)
        expected = [[10.0 * other + rank for other in range(size)] for rank in range(size)]
        findings += [
            equal(f"what {size} ranks have", expected, values, "got[r] is what r had for me."),
            equal(f"messages of {size} ranks", size * (size - 1), by_hand(sends), BY_HAND),
        ]
    return findings


def added_up(f: Callable[..., Any]) -> list[Finding]:
    """Judge a ring all-reduce by its sums, and by the bytes that each rank sends."""
    values, sends = called(f, 4, "f(torch.arange(8.0) * (rank + 1), rank, size).tolist()")
    expected = [[10.0 * at for at in range(8)]] * 4
    each = sends.filter(pl.col("collective").cast(pl.String) == "p2p")
    bytes_sent = dict(each.group_by("rank").agg(pl.col("nbytes").sum()).rows())
    why = "Eight numbers of 4 bytes, in four chunks: a rank sends six chunks of 8 bytes, 2(p-1)/p."
    return [
        equal("the sum on each rank", expected, values),
        at_most("bytes that a rank sends", 48, max(bytes_sent.values(), default=0), why),
        at_least("bytes that a rank sends", 48, min(bytes_sent.values(), default=0), BY_HAND),
    ]


def none_early(f: Callable[..., Any]) -> list[Finding]:
    """Judge a barrier: no rank leaves before the last has come; and by its messages."""
    call = "(time.sleep(0.1 * rank), time.monotonic(), f(rank, size), time.monotonic())[1::2]"
    values, sends = called(f, 4, call)
    came, left = max(value[0] for value in values), min(value[1] for value in values)
    words = f"{(left - came) * 1e3:+.1f} ms after the last arrived"
    why = "Rank 3 arrives 0.3 s after rank 0. A rank that leaves earlier has not waited."
    return [
        Finding("the first leaves", left >= came, "after the last has arrived", words, why),
        at_least("messages", 6, by_hand(sends), "p - 1 ranks report, and p - 1 are answered."),
        at_most("messages", 8, by_hand(sends), "p ⌈lg p⌉, as a dissemination barrier takes."),
    ]


def handed_on(f: Callable[..., Any]) -> list[Finding]:
    """Judge a broadcast by what every rank has, and by what the root sends."""
    call = "f(torch.arange(4.0) + 1 if rank == 0 else torch.zeros(4), rank, size).tolist()"
    values, sends = called(f, 8, call)
    from_root = sends.filter(pl.col("rank") == 0, pl.col("collective").cast(pl.String) == "p2p")
    why = "In each round every rank that has it sends it on: 1, 2, 4, 8 ranks. So lg 8 rounds."
    return [
        equal("what each rank has", [[1.0, 2.0, 3.0, 4.0]] * 8, values),
        equal("messages", 7, by_hand(sends), "Each of the others receives it once."),
        at_most("messages from the root", 3, len(from_root), why),
    ]


def by_hand(sends: pl.DataFrame) -> int:
    """Count the messages between two ranks; a collective counts as far too many."""
    is_message = pl.col("collective").cast(pl.String) == "p2p"
    own = sends.filter(pl.col("op") >= 0)
    collectives = own.filter(~is_message)
    return len(own.filter(is_message)) + 1000 * len(collectives)


EXERCISES = (
    Exercise(
        name="12.1",
        title="All-to-all by hand",
        difficulty=2,
        minutes=15,
        takes=function("swap(mine, rank, size)"),
        judge=transposed,
        task="""
            `all_to_all` is a transpose. Write it with `isend` and `irecv` alone: `mine[r]` is for
            rank `r`, and `got[r]` of the tensor that you return has come from rank `r`.
            """,
        hint="Post all receives first. Do not send to yourself. Wait for all of them at the end.",
        solution="""
            ```python
            def swap(mine, rank, size):
                got = torch.zeros(size)
                got[rank] = mine[rank]
                others = [r for r in range(size) if r != rank]
                works = [dist.irecv(got[r : r + 1], src=r) for r in others]
                works += [dist.isend(mine[r : r + 1].clone(), dst=r) for r in others]
                for work in works:
                    work.wait()
                return got
            ```
            """,
    ),
    Exercise(
        name="12.2",
        title="A ring by hand",
        difficulty=3,
        minutes=30,
        takes=function("ring(x, rank, size)"),
        judge=added_up,
        task="""
            Write a ring all-reduce of a flat tensor with `isend` and `irecv` (its length is a
            multiple of `size`), and return the sum. No rank may send more than $2(p-1)/p$ of it.
            """,
        hint="""
            Chapter 1: `chunks = x.chunk(size)`. In step $k$ rank $r$ sends chunk $r - k$ to the
            right and adds what comes from the left to chunk $r - k - 1$. Then once more, without
            adding.
            """,
        solution="""
            ```python
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
            ```
            """,
    ),
    Exercise(
        name="12.3",
        title="A barrier from messages",
        difficulty=2,
        minutes=15,
        takes=function("barrier(rank, size)"),
        judge=none_early,
        task="""
            Write a barrier with `send` and `recv`: no rank leaves it before the last
            one has arrived. With four ranks it may send eight messages at most.
            """,
        hint="All ranks report to rank 0; when all have, rank 0 answers each of them.",
        solution="""
            ```python
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
            ```
            """,
    ),
    Exercise(
        name="12.4",
        title="A broadcast in three rounds",
        difficulty=2,
        minutes=15,
        takes=function("broadcast(x, rank, size)"),
        judge=handed_on,
        task="""
            Rank 0 of eight has a tensor. Write a broadcast with `send` and `recv` in which rank 0
            sends three messages at most, and return the tensor on every rank.
            """,
        hint="In round $k$ every rank below $2^k$ has it, and sends it to rank + $2^k$.",
        solution="""
            ```python
            def broadcast(x, rank, size):
                reach = 1
                while reach < size:
                    if rank < reach and rank + reach < size:
                        dist.send(x, dst=rank + reach)
                    elif reach <= rank < 2 * reach:
                        dist.recv(x, src=rank - reach)
                    reach *= 2
                return x
            ```
            """,
    ),
)
