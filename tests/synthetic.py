"""Event tables that look like a run's, for tests of what draws them; tests only."""

from __future__ import annotations

import random

import polars as pl

from workbench.store.event_store import Store

MICRO = 1_000  # nanoseconds


def ring_call(
    op: int, start: int, ranks: int = 4, nbytes: int = 246_824, hop: int = 40 * MICRO, seed: int = 0
) -> list[dict[str, object]]:
    """The rows of one ring all-reduce from ``start`` (ns) on; ranks are late, so others wait."""
    chance = random.Random(seed * 7919 + op)
    sizes = [4 * (nbytes // 4 // ranks + (c < nbytes // 4 % ranks)) for c in range(ranks)]
    began = [start + int(chance.uniform(0, 3) * hop) for _ in range(ranks)]
    ready, rows, seq = list(began), [], [0] * ranks
    base = {
        "generation": 0,
        "group": "default",
        "op": op,
        "collective": "all_reduce",
        "algorithm": "ring",
        "lane": "comm",
        "iteration": op,
        "microbatch": -1,
        "stage": -1,
        "version": -1,
        "value": float("nan"),
        "name": "",
    }

    def row(rank: int, kind: str, start_ns: int, end_ns: int, **more: object) -> None:
        blank = {"phase": "", "peer": -1, "step": -1, "chunk": -1, "slot": -1, "nbytes": -1}
        own = {"rank": rank, "kind": kind, "start_ns": start_ns, "end_ns": end_ns, "seq": seq[rank]}
        rows.append({**base, **blank, **own, **more})
        seq[rank] += 1

    for step in range(2 * (ranks - 1)):
        phase = "reduce_scatter" if step < ranks - 1 else "all_gather"
        left = [moment + int(chance.uniform(0.4, 1.0) * hop) for moment in ready]
        arrived = list(left)
        for r in range(ranks):
            c = (r - step) % ranks
            how = dict(phase=phase, step=step, chunk=c, slot=0, nbytes=sizes[c])
            row(r, "send", ready[r], left[r], peer=(r + 1) % ranks, **how)
        for r in range(ranks):
            source, c = (r - 1) % ranks, (r - step - 1) % ranks
            how = dict(phase=phase, step=step, chunk=c, slot=0, nbytes=sizes[c], peer=source)
            there = max(left[r], left[source])
            if there > left[r]:
                row(r, "wait", left[r], there, **how)
            arrived[r] = there + hop // 3
            row(r, "recv", there, arrived[r], name="fused" if step < ranks - 1 else "", **how)
        ready = arrived
    for r in range(ranks):
        row(r, "collective", began[r], ready[r], nbytes=nbytes, name="gradients")
    return rows


def loss_row(iteration: int, at: int, value: float) -> dict[str, object]:
    """The metric row that tells an iteration's loss."""
    return {
        "rank": 0,
        "lane": "compute",
        "seq": iteration,
        "generation": 0,
        "kind": "metric",
        "start_ns": at,
        "end_ns": at,
        "collective": "",
        "algorithm": "",
        "phase": "",
        "group": "",
        "op": -1,
        "peer": -1,
        "step": -1,
        "chunk": -1,
        "slot": -1,
        "nbytes": -1,
        "iteration": iteration,
        "microbatch": -1,
        "stage": -1,
        "version": -1,
        "value": value,
        "name": "loss",
    }


def table(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Rows as the store has them."""
    return Store.from_frame(pl.DataFrame(rows, infer_schema_length=None)).events


def training(
    iterations: int, start: int = 10**12, ranks: int = 4, hop: int = 40 * MICRO
) -> pl.DataFrame:
    """A call and a loss an iteration, 2 ms apart."""
    rows: list[dict[str, object]] = []
    for i in range(iterations):
        at = start + i * 50 * hop
        rows += ring_call(i, at, ranks, hop=hop)
        rows.append(loss_row(i, at + 49 * hop, 2.3 / (1 + i / 10)))
    return table(rows)
