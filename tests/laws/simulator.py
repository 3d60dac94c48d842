"""Event tables of a small simulator: ranks are programs of sends, receives and additions that run
with random delays, each on a clock of its own, and write rows as the engine does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import polars as pl

from workbench.formulas import WITH_ROOT
from workbench.store.table import SCHEMA
from workbench.theory import cost_model


class Do(NamedTuple):
    """One action of a rank's program. A relay receives at ``step`` and sends on at ``step`` + 1."""

    what: str  # send recv fused relay relay_fused reduce own
    peer: int
    step: int
    chunk: int = 0
    to: int = -1


Program = list[Do]


def ring(r: int, n: int) -> Program:
    """As the engine does it: what arrives is added to and passed on in one go."""
    left, right = (r - 1) % n, (r + 1) % n
    last = 2 * (n - 1) - 1
    relays = [
        Do("relay_fused" if s < n - 1 else "relay", left, s, (r - s - 1) % n, right)
        for s in range(last)
    ]
    return [Do("send", right, 0, r), *relays, Do("recv", left, last, (r - last - 1) % n)]


def ring_by_exchange(r: int, n: int) -> Program:
    """As a textbook does it: send, receive, add."""
    program = []
    for s in range(2 * (n - 1)):
        come = (r - s - 1) % n
        program += [Do("send", (r + 1) % n, s, (r - s) % n), Do("recv", (r - 1) % n, s, come)]
        program += [Do("reduce", (r - 1) % n, s, come)] * (s < n - 1)
    return program


def naive(r: int, n: int) -> Program:
    if r:
        return [Do("send", 0, r - 1), Do("recv", 0, n - 2 + r)]
    return [Do("fused", p, p - 1) for p in range(1, n)] + [
        Do("send", p, n - 2 + p) for p in range(1, n)
    ]


def one_shot(r: int, n: int) -> Program:
    """As the engine does it: rank 0's part first, then the others' in order, its own kept aside."""
    program = [Do("send", (r + 1 + s) % n, s) for s in range(n - 1)]
    for p in range(n):
        if p == r:
            program += [Do("own", r, -1)] * (r > 0)
        else:
            program.append(Do("fused" if p else "recv", p, (r - p - 1) % n))
    return program


def one_shot_adding_last(r: int, n: int) -> Program:
    peers = [((r - 1 - s) % n, s) for s in range(n - 1)]
    return (
        [Do("send", (r + 1 + s) % n, s) for s in range(n - 1)]
        + [Do("recv", p, s) for p, s in peers]
        + [Do("reduce", p, s) for p, s in peers]
    )


PROGRAMS: dict[str, Callable[[int, int], Program]] = {
    "ring": ring,
    "ring by exchange": ring_by_exchange,
    "naive": naive,
    "one_shot": one_shot,
    "one_shot adding last": one_shot_adding_last,
}


def planned(name: str, root: int = 0) -> Callable[[int, int], Program]:
    """Programs of the formulas' schedule of "broadcast/tree", say: at a step give, then take."""
    operation, algorithm = name.split("/")
    formula = cost_model.OPERATIONS[operation][algorithm]
    assert formula.schedule is not None
    schedule = cache(formula.schedule)

    def program(r: int, n: int) -> Program:
        place, result, later = (r - root) % n, Program(), Program()
        for step in range(formula.steps(n)):
            now = [t for t in schedule(n) if t.step == step]
            for t in now:
                chunk = (t.chunk + root) % n if operation in ("gather", "scatter") else t.chunk
                if t.source == place:
                    result.append(Do("send", (t.target + root) % n, step, chunk))
            for t in now:
                chunk = (t.chunk + root) % n if operation in ("gather", "scatter") else t.chunk
                if t.target == place:
                    adds_now = t.adds and not formula.adds_last
                    peer = (t.source + root) % n
                    result.append(Do("fused" if adds_now else "recv", peer, step, chunk))
                    if t.adds and formula.adds_last:
                        later.append(Do("reduce", peer, step, chunk))
        return result + later

    return program


OTHERS = [
    f"{operation}/{name}"
    for operation, named in cost_model.OPERATIONS.items()
    for name in named
    if f"{operation}/{name}" not in ("all_reduce/ring", "all_reduce/naive", "all_reduce/one_shot")
]


class Rank:
    """A rank of the simulator: its program, its clock and its rows."""

    def __init__(self, rank: int, program: Program, slots: int, clock: int) -> None:
        self.rank, self.clock, self.rows = rank, clock, list[dict[str, Any]]()
        self.todo = [(do, slot) for do in program for slot in range(slots)]


def simulate(
    name: str,
    n: int,
    elements: int,
    *,
    slots: int = 1,
    seed: int = 0,
    ops: int = 1,
    itemsize: int = 4,
    world: tuple[int, ...] = (),
    group: str = "default",
    root: int = 0,
) -> pl.DataFrame:
    """The event table of ``ops`` collectives. ``world``: the group's ranks, where not 0..n-1.
    ``root`` is a place in it.
    """
    chance, rows = random.Random(seed), list[dict[str, Any]]()
    world = world or tuple(range(n))
    clocks = [1000 + chance.randrange(500) for _ in range(n)]
    operation, _, algorithm = name.rpartition("/")
    operation, algorithm = operation or "all_reduce", algorithm.split()[0]
    rooted = operation in WITH_ROOT
    programs_of = PROGRAMS[name] if name in PROGRAMS else planned(name, root if rooted else 0)
    sends = cost_model.sends_something(operation, n, elements)
    cut = cost_model.OPERATIONS[operation][algorithm].cut(n, elements)
    for op in range(ops):
        same = {"op": op, "algorithm": algorithm, "collective": operation, "group": group}
        ranks = [Rank(r, programs_of(r, n) if sends else [], slots, clocks[r]) for r in range(n)]
        play(ranks, chance, [[itemsize * e for e in cost_model.chunk_sizes(c, slots)] for c in cut])
        for rank in ranks:
            begin, clocks[rank.rank] = clocks[rank.rank], rank.clock + chance.randrange(50)
            outer = dict(
                kind="collective", start_ns=begin, end_ns=rank.clock, nbytes=elements * itemsize
            )
            for row in [*rank.rows, outer]:
                peer = world[row["peer"]] if "peer" in row else world[root] if rooted else -1
                rows.append({**same, **row, "rank": world[rank.rank], "peer": peer})
    return table(rows, itemsize)


def play(ranks: list[Rank], chance: random.Random, sizes: list[list[int]]) -> None:
    """Run the programs: ranks that can go on go on, in random order."""
    there: dict[tuple[int, int, int, int, int], int] = {}
    while any(rank.todo for rank in ranks):
        able = [r for r in ranks if r.todo and ready(r, there)]
        assert able, "the programs wait for each other"
        rank = chance.choice(able)
        do, slot = rank.todo.pop(0)
        what = dict(step=do.step, chunk=do.chunk, slot=slot, nbytes=sizes[do.chunk][slot])

        def write(kind: str, start: int, end: int, rank: Rank = rank, **more: Any) -> None:
            rank.rows.append({"kind": kind, "start_ns": start, "end_ns": end, **more})
            rank.clock = end

        if do.what not in ("send", "reduce", "own"):
            come = there[do.peer, rank.rank, do.step, do.chunk, slot]
            if come > rank.clock:
                write("wait", rank.clock, come, peer=do.peer, **what)
        start = rank.clock + chance.randrange(5)
        middle = start + chance.randrange(1, 30)
        if do.what == "send":
            write("send", start, middle, peer=do.peer, **what)
            there[rank.rank, do.peer, do.step, do.chunk, slot] = chance.randint(start, middle)
        elif do.what.startswith("relay"):
            write("recv", start, middle, peer=do.peer, name="fused" * ("fused" in do.what), **what)
            end = middle + chance.randrange(30)
            write("send", start, end, peer=do.to, **{**what, "step": do.step + 1})
            # A peer may have taken it before this rank looks at its clock for the end of its rows.
            there[rank.rank, do.to, do.step + 1, do.chunk, slot] = chance.randint(start, end)
        else:
            kind = {"own": "reduce", "fused": "recv"}.get(do.what, do.what)
            write(kind, start, middle, peer=do.peer, name="fused" * (do.what == "fused"), **what)


def ready(rank: Rank, there: dict[tuple[int, int, int, int, int], int]) -> bool:
    do, slot = rank.todo[0]
    local = do.what in ("send", "reduce", "own")
    return local or (do.peer, rank.rank, do.step, do.chunk, slot) in there


def table(rows: list[dict[str, Any]], itemsize: int = 4) -> pl.DataFrame:
    """The contract's table: what is not said is -1, "" or NaN; ``seq`` in each rank's order."""
    blank: dict[str, Any] = {
        c: "" if t == pl.Categorical else float("nan") if t == pl.Float64 else -1
        for c, t in SCHEMA.items()
    }
    blank |= {"generation": 0, "lane": "comm"}
    frame = pl.DataFrame([{**blank, **row} for row in rows], infer_schema_length=None)
    return frame.with_columns(
        seq=pl.int_range(pl.len()).over("rank", "lane"),
        value=pl.when(pl.col("kind") == "collective").then(float(itemsize)).otherwise("value"),
    ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
