"""The page's rules (lateness.js, time_spent.js) against arrivals.py and time_spent.py, on the same
rows.

The tables are packed as a page gets them.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.analysis.test_arrivals import spans
from tests.analysis.test_bottleneck import NOTHING
from tests.laws.simulator import PROGRAMS, simulate
from tests.live import ROOT
from tests.views.test_holdings import node
from workbench.analysis.arrivals import MOST, arrivals
from workbench.analysis.time_spent import TimeSpent, rows_of
from workbench.recording.events import KINDS
from workbench.store.table import SCHEMA, Names, from_frame
from workbench.views.packing import pack

Stretch = dict[str, float]
RANKS = 4
SHARED = ("compute", "link", "wait and core")  # parts that both divisions must give alike


def page_says(
    tables: list[tuple[pl.DataFrame, list[Stretch]]], folder: Path
) -> list[dict[str, Any]]:
    """Return what the page makes of each (events, stretches)."""
    questions = [{**packed(events), "stretches": stretches} for events, stretches in tables]
    answers: list[dict[str, Any]] = answers_of("spent_truth.mjs", questions, folder)
    return answers


def packed(events: pl.DataFrame, origin: int = 0) -> dict[str, Any]:
    """Return events as a page gets them."""
    names, rows = Names(), events.sort("rank", "lane", "end_ns", maintain_order=True)
    header, block = pack(from_frame(rows, names.number), origin)
    header |= {"kinds": KINDS, "strings": {"first": 0, "texts": names.since(0)}}
    return {"header": header, "bytes": base64.b64encode(block).decode()}


def answers_of(script: str, questions: list[dict[str, Any]], folder: Path) -> Any:
    """Return what a script of tests/js/ answers."""
    file = folder / "tables.json"
    file.write_text(json.dumps(questions))
    command = [node(), ROOT / "tests" / "js" / script, file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def calls_with_gaps(seed: int) -> pl.DataFrame:
    """Return operations that each rank enters some time after it left the one before."""
    chance = random.Random(seed)
    ended, calls = dict.fromkeys(range(RANKS), 0.0), []
    for _ in range(8):
        usual = chance.choice([0.4, 100.0])
        slow = {chance.randrange(RANKS): chance.choice([0.0, 50.0, 200.0])}
        came = {r: at + usual + slow.get(r, 0.0) + chance.random() for r, at in ended.items()}
        stagger = chance.choice([0.0, 5.0])  # a slow link lets ranks go one after another
        ended = {rank: max(came.values()) + 1 + stagger * rank for rank in came}
        calls.append({rank: (came[rank], ended[rank]) for rank in came})
    return spans(calls).events


def test_both_name_the_rank_that_came_last_and_none_that_had_no_time_to_be_there(
    tmp_path: Path,
) -> None:
    tables = [calls_with_gaps(seed) for seed in range(20)]
    answers = page_says([(events, []) for events in tables], tmp_path)
    blamed = 0
    for events, page in zip(tables, answers, strict=True):
        report = {row["op"]: row for row in arrivals(events).rows(named=True)}
        assert len(report) == len(page["calls"]) == 8
        for call in page["calls"]:
            row, late_ms = report[call["op"]], call["late"] * 1e-6
            assert call["rank"] == row["last"], call
            assert row["late_ms"] <= call["after"] * 1e-6 + 1e-6
            assert late_ms == pytest.approx(row["own_ms"], abs=1e-6)
            if call["op"]:  # of the first call no row tells since when a rank was free
                blamed += row["own_ms"] > 10 and row["own_ms"] >= MOST * row["late_ms"]
    assert blamed > 20


@pytest.mark.parametrize(
    ("late", "free", "others_free"),
    [(200, 205, 5), (20, 0.4, 0.4), (15, 0.4, 0.3), (20, 100, 100), (20, 5, 300)],
)
def test_both_give_the_same_lateness(
    late: float, free: float, others_free: float, tmp_path: Path
) -> None:
    came = {0: 1_000.0, 1: 1_000.0 + late, 2: 1_000.0}
    ended = {rank: at - (free if rank == 1 else others_free) for rank, at in came.items()}
    calls = [
        {rank: (0.0, at) for rank, at in ended.items()},
        {rank: (at, 1_300.0) for rank, at in came.items()},
    ]
    events = spans(calls).events
    ((_, call),) = (page["calls"] for page in page_says([(events, [])], tmp_path))
    (_, row) = arrivals(events).rows(named=True)
    assert (call["rank"], call["after"] * 1e-6) == (row["last"], pytest.approx(row["late_ms"]))
    assert call["late"] * 1e-6 == pytest.approx(row["own_ms"], abs=1e-6)


def iteration(
    name: str, seed: int, queued: float = 0.0, beside: float = 0.0
) -> tuple[pl.DataFrame, list[Stretch]]:
    """Return an iteration in which ranks compute, then average, and its stretch on each rank.

    ``queued``: the share of its computing for which a rank waits for a core; ``beside``: for how
    long it does beside its computing, in ns.
    """
    chance = random.Random(seed)
    call = simulate(name, RANKS, 40, slots=1 + seed % 2, seed=seed)
    rows, stretches = [], []
    for rank in range(RANKS):
        own = call.filter(pl.col("rank") == rank)
        begin, end = own.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
        start = 1_000 - 300 * chance.randrange(3)
        until = begin + chance.choice([0, 40])  # it may still compute beside its first messages
        late = queued * (until - start)
        own = {**NOTHING, "rank": rank, "lane": "compute", "start_ns": start, "end_ns": until}
        rows.append({**own, "kind": "backward", "value": late, "seq": 0})
        metric = {"kind": "metric", "name": "runqueue", "end_ns": start, "seq": 1}
        rows.append({**own, **metric, "value": late + beside})
        stretch = {"rank": rank, "start": start, "end": max(end, until)}
        stretches.append(stretch | {"queue": late + beside, "queued": late})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    computing = frame.select(pl.col(column).cast(dtype) for column, dtype in SCHEMA.items())
    events = pl.concat([call, computing, *([] if queued else frozen_by(seed, call))])
    return events.with_columns(iteration=pl.lit(1, events.schema["iteration"])), stretches


def frozen_by(seed: int, call: pl.DataFrame) -> list[pl.DataFrame]:
    """Return what the driver records of a rank that is frozen in the middle; nothing for even
    seeds. It goes on as if it were not, so that it is in the middle of rows of all kinds.
    """
    if seed % 2 == 0:
        return []
    begin, end = call.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    marks = (("freeze", begin + (end - begin) // 4), ("thaw", begin + (end - begin) // 2))
    own = {**NOTHING, "kind": "fault", "lane": "driver", "peer": seed % RANKS}
    rows = [{**own, "name": name, "start_ns": at, "end_ns": at} for name, at in marks]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return [frame.select(pl.col(column).cast(dtype) for column, dtype in SCHEMA.items())]


def test_both_divide_the_time_of_an_iteration_alike(tmp_path: Path) -> None:
    tables = [
        iteration(name, seed, **cores)
        for name in sorted(PROGRAMS)
        for seed in range(4)
        for cores in ({}, {"queued": 0.5}, {"beside": 60.0})
    ]
    seen = set()
    for (events, stretches), page in zip(tables, page_says(tables, tmp_path), strict=True):
        spent = TimeSpent(rows_of(events.lazy())).parts
        total = {
            part: sum(one[part] for _, one in page["spent"])
            for part in ("compute", "wait", "link", "core")
        }
        # Waiting for a rank that waits for a core counts as a core's in the report alone.
        here = {**total, "wait and core": total["wait"] + total["core"]}
        there = {**spent, "wait and core": spent["wait"] + spent["core"]}
        assert [here[part] for part in SHARED] == pytest.approx([there[part] for part in SHARED])
        if not any(one["queued"] for one in stretches):
            assert total["core"] == pytest.approx(spent["core"])
        seen |= {part for part, ns in total.items() if ns > 0}
    assert seen == {"compute", "wait", "link", "core"}
