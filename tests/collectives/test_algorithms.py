"""The laws of collectives, for every file of the folder: a new one is tested with no edit."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.collectives.cases import FILES, RANKS, SLOT
from tests.collectives.ranks import run_all
from tests.pairwise import first
from tests.processes import values
from workbench import laws

FIRST = [  # one of each kind
    *(
        ("all_reduce", name)
        for name in ("ring", "rabenseifner", "hierarchical", "butterfly", "tree")
    ),
    ("broadcast", "tree"),
    ("reduce", "flat"),
]
ALIKE = ("all_reduce", "broadcast", "all_gather")  # every rank ends with the same bits


def every_law(operation: str, name: str, folder: Path, every: bool = False) -> pl.DataFrame:
    """Run a file's cases and ask every law. Returns the events."""
    env = {"WORKBENCH_CHUNK": str(SLOT), "WORKBENCH_TRACE": str(folder)}
    ranks = max(RANKS)
    digests = values(
        run_all, ranks, operation, name, every, env=env, group_timeout=15.0, timeout=100.0
    )
    if operation in ALIKE:
        for case, digest in digests[0].items():
            differing = [r for r, one in enumerate(digests) if one.get(case, digest) != digest]
            assert not differing, f"{case}: the bits of ranks {differing} are not rank 0's"
    store = wb.load(folder)
    assert store.dropped == 0
    assert laws.check_events(store.events) == []
    assert not unfounded_waits(store.events).height
    assert not steps_backwards(store.events).height
    return store.events


def unfounded_waits(events: pl.DataFrame) -> pl.DataFrame:
    """Waits for a message that does not come next: they name another step, chunk or peer."""
    what = ["rank", "group", "op", "step", "chunk", "peer"]
    kind, name = (pl.col(one).cast(pl.String) for one in ("kind", "name"))
    waits = events.filter(kind == "wait", name == "", pl.col("slot") >= 0)
    return waits.join(events.filter(kind == "recv"), on=what, how="anti")


def steps_backwards(events: pl.DataFrame) -> pl.DataFrame:
    """Sends of one slot of a chunk that are not in the order of their steps."""
    sends = events.filter(pl.col("kind").cast(pl.String) == "send").sort("rank", "lane", "seq")
    own = ["rank", "group", "op", "chunk", "slot"]
    return sends.filter(pl.col("step") < pl.col("step").shift(1).over(own))


@pytest.mark.parametrize(
    ("operation", "name"), first(7, sorted(FILES, key=FIRST.count, reverse=True))
)
def test_every_law_holds(operation: str, name: str, tmp_path: Path) -> None:
    every_law(operation, name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("operation", "name"), FILES)
def test_every_law_holds_over_the_full_product(operation: str, name: str, tmp_path: Path) -> None:
    every_law(operation, name, tmp_path, every=True)
