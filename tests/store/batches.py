"""Batches of records as the collector appends them, and what the table should say of them."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
from hypothesis import strategies as st

from workbench.recording import events
from workbench.store.event_store import Store
from workbench.store.table import SCHEMA

TEXT = st.text(max_size=12)
INTEGER = st.integers(-1, 2**31 - 1)


def batch(store: Store, rank: int, lane: str, first: int, count: int) -> list[dict[str, object]]:
    """Append ``count`` records as the collector does; what the table should say of them."""
    chance = random.Random(f"{rank} {lane} {first}")
    rows, records = np.zeros(count, events.ROW), list[dict[str, object]]()
    for i in range(count):
        context, kind, name = chance.randrange(3), chance.randrange(len(events.KINDS)), f"n{i % 5}"
        start = chance.randrange(2**50)
        times, place = (start, start + i), (-1, i, 0, -1)  # peer, step, chunk, slot
        rows[i] = (*times, context, kind, *place, store.number(name), 0, 7, 0.5, first + i + 1)
        records.append(
            {
                "rank": rank,
                "lane": lane,
                "seq": first + i,
                "generation": context,
                "kind": events.KINDS[kind],
                "start_ns": start,
                "end_ns": start + i,
                "collective": "all_reduce",
                "algorithm": f"algorithm {context}",
                "phase": "",
                "group": "default",
                "op": first,
                "peer": -1,
                "step": i,
                "chunk": 0,
                "slot": -1,
                "nbytes": 7,
                "iteration": context,
                "microbatch": -1,
                "stage": -1,
                "version": 2**40,
                "value": 0.5,
                "name": name,
            }
        )
    store.append(rank, store.number(lane), rows, _contexts(store, first))
    return records


def _contexts(store: Store, op: int) -> np.ndarray:
    """Three contexts of a collective, an algorithm, a generation and an iteration each."""
    contexts = np.zeros(3, events.CONTEXT)
    for i in range(3):
        names = [store.number(name) for name in ("all_reduce", f"algorithm {i}", "default")]
        contexts[i] = (*names, 0, i, -1, op, i, -1, 2**40, 0, 0)
    return contexts


def filled(store: Store, batches: int = 40) -> Store:
    for i in range(batches):
        batch(store, i % 3, ("comm", "compute")[i % 2], i // 6 * 100, 100)
    return store


def settle(store: Store) -> Store:
    while spiller := store._spiller:
        spiller.join()
    return store


ROW = st.fixed_dictionaries(
    {
        name: TEXT if dtype == pl.Categorical else st.floats() if name == "value" else INTEGER
        for name, dtype in SCHEMA.items()
    }
)
