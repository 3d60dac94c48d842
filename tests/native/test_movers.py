"""Both movers, and groups in which they meet: the same bytes, the same rows, field by field."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.collectives.test_algorithms import every_law
from tests.native.ends import DONE, FOREIGN, LOOK, PYTHON, fuzz
from tests.pairwise import first
from tests.processes import ROOT, values
from workbench import native
from workbench.messaging.fingerprint import signature
from workbench.native import build
from workbench.recording.events import NOWHERE, now

RANKS, MESSAGES = 3, 80
DTYPES = ("float32", "float64", "int64", "int16", "uint8", "float16", "bfloat16", "bool")
REDUCTIONS = (None, "SUM", "PRODUCT", "MIN", "MAX")
SIZES = (0, 1, 2, 17, 255, 256, 257, 1000, 2048, 5000)
# Everything of a row but what depends on when it was written.
FIELDS = (
    "rank lane kind peer step chunk slot nbytes name phase value collective algorithm op group"
).split()
MIXED = {
    "C": ("c", "c", "c"),
    "Python": ("python", "python", "python"),
    "one without": ("c", "python", "c"),
    "one with": ("python", "python", "c"),
}


def _messages(rank: int, size: int, seed: int) -> list[str]:
    """Random messages, one a collective. Returns a digest of what this rank has after each."""
    group: Any = dist.group.WORLD
    comm, chance, digests = group.comm, random.Random(seed), []
    for op in range(MESSAGES):
        kind, dtype = chance.choice(("pair", "chain", "ring")), chance.choice(DTYPES)
        reduce = chance.choice(REDUCTIONS if dtype != "bool" else (None,))
        elements, many, shift = (
            chance.choice(SIZES),
            chance.choice((0, 0, 2, 3)),
            chance.randrange(3),
        )
        keep, before, step = chance.random() < 0.5, chance.random() < 0.5, chance.randrange(9)
        order = chance.sample(range(size), size)
        tensors = [
            _values(rank, op, part, elements, dtype, shift) for part in range(2 * max(1, many))
        ]
        comm.begin(
            "test", kind, next(group._numbers), signature("barrier"), NOWHERE, (elements,), dtype
        )
        start, (a, b, c) = now(), order
        where: dict[str, Any] = {"step": step, "chunk": op, "phase": "here"}
        if kind == "pair" and rank == a:
            comm.send(tensors[0], to=b, **where)
        elif kind == "pair" and rank == b:
            comm.recv(tensors[0], frm=a, reduce=reduce, **where)
        elif kind == "chain" and rank == a:
            comm.post(tensors[0], to=b, **where)
        elif kind == "chain" and rank == b:
            comm.relay(tensors[0], frm=a, to=c, reduce=reduce, keep=keep, next_phase="on", **where)
        elif kind == "chain":
            comm.recv(tensors[0], frm=b, **where | {"step": step + 1})
        elif kind == "ring":
            at = order.index(rank)
            ends = {"to": order[(at + 1) % size], "frm": order[at - 1], "reduce": reduce}
            if many:
                where |= {"chunk": [*range(many)], "into_chunk": [*range(many, 2 * many)]}
                comm.exchange(tensors[:many], into=tensors[many:], before=before, **ends, **where)
            else:
                comm.exchange(tensors[0], into=tensors[1], before=before, **ends, **where)
        comm.end(start, elements)
        digests.append(hashlib.sha256(b"".join(map(_bytes, tensors))).hexdigest()[:16])
    dist.barrier()
    return digests


def _values(rank: int, op: int, part: int, elements: int, dtype: str, shift: int) -> Any:
    """A numpy array, which need not lie at a multiple of its items' size; a tensor where numpy
    does not know the dtype, or as algorithms of users pass them.
    """
    drawn = np.random.default_rng([rank, op, part]).integers(0, 3, elements)
    if shift == 1 or dtype == "bfloat16":
        return torch.from_numpy(drawn).to(getattr(torch, dtype))
    item = np.dtype(dtype).itemsize
    room = np.zeros(elements * item + 8, np.uint8)[shift // 2 :][: elements * item].view(dtype)
    room[:] = drawn
    return room


def _bytes(x: Any) -> bytes:
    if isinstance(x, torch.Tensor):
        x = x.as_strided(x.shape, (1,)).view(torch.uint8).numpy()
    return bytes(x.tobytes())


def _on_one_core(rank: int, size: int, seconds: float) -> tuple[int, bool]:
    """Put both ranks on one core again and again while they exchange, until one has left it.
    Returns how often this rank did, and whether it may still use the cores that it might before.
    """
    mover, cores = dist.group.WORLD.comm.slots.mover, os.sched_getaffinity(0)
    x, deadline = torch.ones(16), time.monotonic() + seconds
    while True:
        os.sched_setaffinity(0, {min(cores)})
        os.sched_setaffinity(0, cores)
        for _ in range(50):
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
        over = torch.tensor([mover.core_changes, time.monotonic() > deadline]).float()
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.any():
            return mover.core_changes, os.sched_getaffinity(0) == cores


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.skipif(native.compiled() is None, reason="no compiled mover")
def test_ranks_that_take_turns_on_one_core_part() -> None:
    ends = values(_on_one_core, 2, 30.0)
    assert sum(moves for moves, _ in ends) > 0
    assert all(same for _, same in ends)


def _point_to_point(rank: int, size: int, seed: int) -> list[str]:
    """Random messages from rank to rank, each rank's posted at once. Returns a digest of each."""
    chance, digests = random.Random(seed), []
    for round_number in range(MESSAGES // 8):
        works, arriving = [], []
        for op in range(8):
            frm, to = chance.sample(range(size), 2)
            dtype, tag = chance.choice(DTYPES), chance.choice((0, 0, 3))
            elements, shift = chance.choice(SIZES), chance.randrange(3)
            sizes = rank, round_number, op, elements, dtype, shift
            if rank == frm:
                works.append(dist.isend(_tensor(*sizes), to, tag=tag))
            elif rank == to:
                arriving.append(_tensor(*sizes))
                works.append(dist.irecv(arriving[-1], frm, tag=tag))
        for work in works:
            work.wait()
        digests += [hashlib.sha256(_bytes(x)).hexdigest()[:16] for x in arriving]
        dist.barrier()
    return digests


def _tensor(rank: int, op: int, part: int, elements: int, dtype: str, shift: int) -> torch.Tensor:
    values = _values(rank, op, part, elements, dtype, shift)
    return values if isinstance(values, torch.Tensor) else torch.from_numpy(values)


def rows_of(folder: Path) -> pl.DataFrame:
    """All rows but waits, which depend on which comes first, and what names a rank that is late."""
    store = wb.load(folder).store
    events = store.events.filter(~pl.col("kind").is_in(["wait", "detect"])).sort(
        "rank", "lane", "seq"
    )
    assert store.dropped == 0
    return events.select(FIELDS)


def messages_of(folder: Path) -> pl.DataFrame:
    """All rows of messages from rank to rank but waits; slots of several may cross."""
    rows = rows_of(folder).filter(pl.col("collective") == "p2p")
    return rows.sort("rank", "lane", "peer", "op", "slot")


def moved(seed: int, folder: Path, messages: Any = _messages, rows_in: Any = rows_of) -> None:
    digests, rows = {}, {}
    for name, movers in MIXED.items():
        trace = folder / name

        def env(rank: int, movers: tuple[str, ...] = movers, trace: Path = trace) -> dict[str, str]:
            chosen = {"WORKBENCH_MOVER": movers[rank], "WORKBENCH_CHUNK": "1024"}
            return chosen | {"WORKBENCH_TRACE": str(trace)}

        digests[name] = values(messages, RANKS, seed, env=env)
        rows[name] = rows_in(trace)
        assert len(rows[name]) > MESSAGES, name
    for name in MIXED:
        assert digests[name] == digests["Python"], name
        assert rows[name].equals(rows["Python"], null_equal=True), name


def test_movers_of_both_kinds_move_and_record_the_same(tmp_path: Path) -> None:
    moved(0, tmp_path)


@pytest.mark.full
def test_both_movers_move_and_record_messages_from_rank_to_rank_alike(tmp_path: Path) -> None:
    moved(0, tmp_path, _point_to_point, messages_of)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 13))
def test_movers_of_both_kinds_move_and_record_the_same_again(seed: int, tmp_path: Path) -> None:
    moved(seed, tmp_path / "collectives")
    moved(seed, tmp_path / "messages", _point_to_point, messages_of)


@pytest.mark.parametrize(
    ("operation", "name"),
    first(1, [("all_reduce", "ring"), ("all_reduce", "butterfly"), ("broadcast", "tree")]),
)
def test_the_laws_hold_without_the_compiled_mover(
    operation: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other tests run with it, where it was compiled."""
    monkeypatch.setenv("WORKBENCH_MOVER", "python")
    every_law(operation, name, tmp_path)


def test_a_hostile_peer_makes_it_write_nowhere_else() -> None:
    module = native._chosen("c").module
    counts: dict[int, int] = {}
    for seed in range(3):
        for code, count in fuzz(module, seed, 60).items():
            counts[code] = counts.get(code, 0) + count
    assert all(counts[code] for code in (DONE, LOOK, PYTHON, FOREIGN)), counts


@pytest.mark.full
@pytest.mark.parametrize(
    ("sanitizer", "what"), [("address", "fuzz"), ("address", "race"), ("thread", "race")]
)
def test_no_sanitizer_finds_anything(sanitizer: str, what: str, tmp_path: Path) -> None:
    """Bounds, alignment, overflow; and words that two threads use without an order."""
    both, binary = (
        {"address": ("address", "undefined"), "thread": ("thread",)}[sanitizer],
        tmp_path / "m.so",
    )
    options = [f"-fsanitize={','.join(both)}", *"-O1 -g -DPLAIN_LOOPS -Werror".split()]
    if sanitizer == "thread":
        options.append("-Wno-tsan")  # it does not see fences: no word here relies on one alone
    done = subprocess.run(build.command(["gcc"], binary, options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name=lib{name}san.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in {"address": ("a", "ub"), "thread": ("t",)}[sanitizer]
    ]
    words = [sys.executable, "-m", "tests.native.sanitized", str(binary), what]
    if sanitizer == "thread":
        words = ["setarch", "-R", *words]  # it wants the places of memory that it knows
    environment = os.environ | {
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
        "UBSAN_OPTIONS": "halt_on_error=1",
        "TSAN_OPTIONS": "halt_on_error=1 exitcode=66",
    }
    ran = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500
    )
    assert ran.returncode == 0 and f"done {what}" in ran.stdout, (ran.stdout + ran.stderr)[-4000:]
