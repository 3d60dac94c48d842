"""Folded time: what a page gets of a run that records more rows than a page can draw."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.live import until
from tests.synthetic import training
from tests.views.feeding import Run, join
from workbench.recording.events import CODE, CONTEXT, KINDS, ROW
from workbench.store.table import Batch
from workbench.views.packing import joined, passages
from workbench.views.pages import level_of_detail as module
from workbench.views.pages.level_of_detail import PARTS, LevelOfDetail

COMPUTES = PARTS[:5]
SORT = {"recv": "send", "copy": "reduce", "apply": "reduce"}


def rows_of(rank: int, chance: random.Random) -> list[Batch]:
    """Two lanes that overlap: computing, and messages with their outer collectives."""
    batches = []
    for lane, kinds in ((1, COMPUTES), (2, ("send", "recv", "wait", "reduce", "copy"))):
        rows, at = [], 1_000
        for number in range(60):
            start = at + chance.randrange(40)
            end = start + 1 + chance.randrange(60)
            at = end if lane == 1 or number % 5 else start  # a relay's receive and send overlap
            rows.append((CODE[chance.choice(kinds)], start, end))
        if lane == 2:
            rows.append((CODE["collective"], min(r[1] for r in rows), max(r[2] for r in rows)))
        table = np.zeros(len(rows), ROW)
        for name, column in zip(
            ("kind", "start_ns", "end_ns"), zip(*rows, strict=True), strict=True
        ):
            table[name] = column
        table["seq"] = np.arange(1, len(rows) + 1)
        table["value"], table["nbytes"] = np.nan, np.arange(len(rows))
        context = np.zeros(1, CONTEXT)
        context["iteration"] = 3
        batches.append(Batch(rank, lane, table, context))
    return batches


def shares(batches: list[Batch]) -> Counter[tuple[int, str]]:
    """By rank: how many ns it computed, communicated, added, waited, one after the other, and how
    much of the communication was hidden; counted ns by ns.
    """
    doing: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in batches:
        for row in one.rows:
            kind = KINDS[row["kind"]]
            sort = "compute" if kind in COMPUTES else SORT.get(kind, kind)
            for t in range(row["start_ns"], row["end_ns"]):
                doing[one.rank, t].add(sort)
    result: Counter[tuple[int, str]] = Counter()
    for (rank, _), sorts in doing.items():
        first = next(s for s in ("compute", "send", "reduce", "wait", "collective") if s in sorts)
        result[rank, "send" if first == "collective" else first] += 1
        result[rank, "hidden"] += {"compute", "send"} <= sorts
    return result


def drawn(rows: Any) -> Counter[tuple[int, str]]:
    """The same, as the page draws folded rows: computing covers what lies below it."""
    spans = [
        (int(rank), KINDS[row["kind"]], row["start_ns"], row["end_ns"])
        for rank, first, count in zip(rows.rank, rows.first, rows.count, strict=True)
        for row in rows.rows[first : first + count]
    ]
    result: Counter[tuple[int, str]] = Counter()
    computed = {(rank, t) for rank, kind, a, b in spans if kind in COMPUTES for t in range(a, b)}
    for rank, kind, a, b in spans:
        hidden = 0 if kind in COMPUTES else sum((rank, t) in computed for t in range(a, b))
        result[rank, "compute" if kind in COMPUTES else kind] += b - a - hidden
        result[rank, "hidden"] += hidden
    return result


@pytest.mark.parametrize("seed", range(8))
def test_time_is_divided_exactly_and_every_row_is_counted(seed: int) -> None:
    chance = random.Random(seed)
    batches = [one for rank in (0, 3, 7) for one in rows_of(rank, chance)]
    detail = LevelOfDetail()
    folded = detail.fold(passages(batches), 0, 1e9)
    assert drawn(folded) == +shares(batches)
    rows = sum(len(one.rows) for one in batches)
    assert detail.folded == (rows, len(folded.rows)) and len(folded.rows) <= 3 * len(PARTS)
    talks = np.isin(folded.rows["kind"], [CODE[kind] for kind in PARTS[5:]])
    outer, computing = 3, 3 * 60  # rows of computing keep their own values' sum
    assert folded.rows["value"][talks].sum() == rows - outer - computing
    sent = sum(int(one.rows["nbytes"][one.rows["kind"] == CODE["send"]].sum()) for one in batches)
    assert folded.rows["nbytes"][folded.rows["kind"] == CODE["send"]].sum() == sent
    assert set(folded.context["iteration"]) == {3} and set(folded.context["op"]) == {-1}


@pytest.mark.parametrize("seed", range(4))
def test_no_time_is_told_twice_or_lost_between_two_calls(seed: int) -> None:
    chance = random.Random(seed)
    batches = [one for rank in (0, 1) for one in rows_of(rank, chance)]
    detail, parts = LevelOfDetail(), []
    for upto in (700, 1_900, 1 << 40):  # rows in the order of their end
        part = []
        for i, one in enumerate(batches):
            ready = one.rows["end_ns"] <= upto
            part.append(Batch(one.rank, one.lane, one.rows[ready], one.contexts))
            batches[i] = Batch(one.rank, one.lane, one.rows[~ready], one.contexts)
        parts.append(detail.fold(passages(part), 0, 1e9))
    rows = joined(parts)
    for rank in (0, 1):
        mine = [
            rows.rows[first : first + count]
            for first, count, of in zip(rows.first, rows.count, rows.rank, strict=True)
            if of == rank
        ]
        ends = [int(one["end_ns"][-1]) for one in mine]
        assert ends == sorted(ends)  # as a lane's rows come
    again = {key: n for key, n in drawn(rows).items() if key[1] != "hidden"}
    assert sum(again.values()) == len(
        {(rank, t) for (rank, _), t in _moments(parts)}
    )  # each ns has one owner


def _moments(parts: list[Any]) -> Any:
    for rows in parts:
        for rank, first, count in zip(rows.rank, rows.first, rows.count, strict=True):
            for row in rows.rows[first : first + count]:
                for t in range(row["start_ns"], row["end_ns"]):
                    yield (int(rank), 0), t


def test_a_page_is_told_folded_time_of_many_rows_and_the_store_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST", 200)
    monkeypatch.setattr(module, "WHOLE", 1)
    run = Run()
    client, page = join(run)

    def folds() -> bool:
        run.tell(training(4))  # so many rows per second, in however many of them
        time.sleep(0.15)
        return (client.last["counters"]["folded"] or [0])[0] > 0

    until(folds, what="time is folded")
    client.until(lambda: client.last["counters"]["events"] == len(run.store))
    client.until(lambda: sum(h["rows"] for h in client.headers[-1:]) == 0, what="all is told")
    shown, kept = client.table, run.store.events
    assert client.last["counters"]["events"] == kept.height  # all are counted
    rows, into = client.last["counters"]["folded"]
    assert rows - into == kept.height - shown.height > 0
    metrics = pl.col("kind") == "metric"
    assert shown.filter(metrics).height == kept.filter(metrics).height
    assert not shown.filter(rank=0, step=-1).is_empty()
    run.done = True
    client.until(lambda: client.last["state"] != "running")
    page.leave()
    later, page = join(run)  # over: the rows as they were recorded
    later.until(lambda: later.table.height == kept.height)
    page.leave()


def test_a_store_of_few_rows_per_second_is_told_whole() -> None:
    detail = LevelOfDetail()
    assert detail.due(module.MOST, 0.0) and not detail.folds
    assert detail.due(module.MOST + 1, 0.0) and detail.folds
    rows = passages(rows_of(module.WHOLE, random.Random(0)))
    assert len(detail.take(rows, 10.0).rows) <= len(PARTS)
    assert not detail.due(module.MOST, 10.0 + detail.seconds / 2)
    assert detail.due(module.MOST, 10.0 + 2 * detail.seconds)
    calm = 10.0 + 2 * detail.seconds + module.CALM_S
    assert detail.due(module.MOST / 2, calm - 0.01) and detail.folds  # a pause is not an end
    assert detail.due(module.MOST / 2, calm) and not detail.folds
    assert detail.take(rows, calm) is rows
