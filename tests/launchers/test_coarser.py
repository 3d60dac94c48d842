"""A way to the driver that cannot keep up: the record gets coarser at its source, and says so."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.launchers.test_cut_off import LAUNCHER, whole
from tests.live import LONG, PATIENCE, over_in_the_end, training, until
from workbench import laws
from workbench.launchers.processes.coarser import KEYS, LATE, LEAST, Folding, _groups, level
from workbench.recording.events import CONTEXT, RECORD_BYTES, RECV, ROW, WAIT
from workbench.views.pages.tally import Tally

RATE = 20_000  # bytes per second, of the records of rank 1: less than any core makes of them


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """The launcher of test_cut_off.py, with a slow wire to the driver."""
    path = tmp_path / "slow_wires.py"
    slow = LAUNCHER.replace("LATE = 0.0  # seconds", "LATE = 0.0  # seconds\nRATE = [float('inf')]")
    slow = slow.replace(
        "            target.sendall(data)\n",
        "            while len(data) > (piece := 1000) and RATE[0] < float('inf'):\n"
        "                target.sendall(data[:piece])\n"
        "                data = data[piece:]\n"
        "                time.sleep(piece / RATE[0])\n"
        "            target.sendall(data)\n",
    )
    assert slow.count("RATE") == 3
    path.write_text(slow)
    return f"{path}:Launcher"


def rate() -> list[float]:
    module: Any = [one for name, one in sys.modules.items() if name.endswith("slow_wires")][-1]
    result: list[float] = module.RATE
    return result


@pytest.mark.full
def test_a_slow_wire_makes_the_record_coarser_and_it_is_whole_again_with_room(
    launcher: str,
) -> None:
    exp = wb.Experiment(
        task="mlp_layers",
        task_options={"width": 48},
        ranks=2,
        iterations=LONG,
        batch_size=12,
        threads=1,
        chunk_bytes=512,
        pad_compute="50 ms",
        timeout="10 min",  # no host is given up because it is slow
        launcher=launcher,
    )
    with over_in_the_end(wb.run(exp)) as run:
        training(run, 1)
        reader = Reader(run)
        rate()[0] = RATE
        until(
            lambda: reader.missing() > 1.25 * LEAST / RECORD_BYTES or run.done,
            what="a backlog",
            every=0.2,
        )
        late = time.monotonic() + 1.5 * LATE
        until(lambda: time.monotonic() > late or run.done)
        coarse = run.iteration
        until(lambda: run.iteration > coarse + 3 or run.done, what="iterations in few rows")
        rate()[0] = float("inf")
        until(lambda: "coarser" in run.store.metadata or run.done, what="word of it")
        coarse = run.iteration
        until(lambda: reader.full_since() > coarse or run.done, what="all rows again", every=0.5)
        run.stop()
        result = run.wait(PATIENCE)
    assert result.ok and run.dropped == 0
    events = run.events
    assert whole(events), "rows are numbered without a gap"
    chunks, rows = json.loads(run.store.metadata["coarser"])
    moved = pl.col("kind").is_in(["send", "recv", "wait"])
    folded = events.filter(moved, ~pl.col("value").is_nan())
    assert set(folded["rank"]) == {1} and chunks > rows > 0
    assert Tally(run.store, {}).counters(True)["coarser"] == [chunks, rows]
    sent = events.filter(pl.col("kind") == "send", pl.col("collective") == "all_reduce")
    sums = sent.group_by("group", "op", "rank").agg(pl.col("nbytes").sum())
    least, most = pl.min("nbytes").alias("least"), pl.max("nbytes").alias("most")
    calls = sums.group_by("group", "op").agg(least, most)
    assert calls.filter(pl.col("least") != pl.col("most")).height == 0, "no byte is lost"
    words = f"coarser: {chunks:,} chunks in {rows:,} rows"
    with pytest.warns(UserWarning, match=f"{words}: laws that need every chunk .* not judged"):
        assert laws.check_events(events) == []


class Reader:
    """Counts the rows of each rank, and its sends by iteration, so far. Each row is read once, as a
    look at all of them takes longer and longer.
    """

    def __init__(self, run: wb.Run) -> None:
        self._store, self._position = run.store, 0
        self._rows, self._sends = Counter[int](), Counter[tuple[int, int]]()

    def _read(self) -> None:
        rows, self._position = self._store.since(self._position)
        self._rows.update(dict(rows["rank"].value_counts().iter_rows()))
        sends = rows.filter(pl.col("kind") == "send", pl.col("iteration") >= 0)
        counts = sends.group_by("iteration", "rank").len()
        self._sends.update({(at, rank): count for at, rank, count in counts.iter_rows()})

    def missing(self) -> int:
        """Return how many rows the driver has of rank 0 and not of rank 1, which makes as many."""
        self._read()
        return self._rows[0] - self._rows[1]

    def full_since(self) -> int:
        """Return the newest iteration of which rank 1's record is as fine as rank 0's; -1: none."""
        self._read()
        same = (at for at, rank in self._sends if self._sends[at, 0] == self._sends[at, 1])
        return max(same, default=-1)


def rows_of(count: int, first: int = 1) -> np.ndarray:
    """Waits and receives of two calls, four pieces a message."""
    rows = np.zeros(count, ROW)
    rows["seq"] = np.arange(first, first + count)
    rows["kind"] = [WAIT, RECV] * (count // 2)
    rows["start_ns"] = rows["seq"] * 100
    rows["end_ns"] = rows["start_ns"] + 60
    rows["nbytes"] = np.where(rows["kind"] == RECV, 10, 0)
    rows["slot"] = np.arange(count) // 2 % 4
    rows["chunk"] = np.arange(count) // 8
    rows["context"] = 1 + np.arange(count) // 32
    rows["value"] = np.nan
    return rows


@pytest.mark.parametrize("detail, left", [(0, 64), (1, 16), (2, 4)])
def test_sums_are_kept_at_every_level_and_numbers_have_no_gap(detail: int, left: int) -> None:
    folding, none = Folding(), np.zeros(0, CONTEXT)
    rows, _ = folding.take(rows_of(64), none, detail)
    more, _ = folding.take(rows_of(64, 65), none, 0)
    assert len(rows) == left and [*rows["seq"], *more["seq"]] == [*range(1, left + 65)]
    before = rows_of(64)
    assert rows["nbytes"].sum() == before["nbytes"].sum()
    assert (rows["end_ns"] - rows["start_ns"]).sum() == 64 * 60
    assert rows["end_ns"].max() == before["end_ns"].max()
    assert (folding.chunks, folding.rows) == ((64, left) if detail else (0, 0))


@pytest.mark.parametrize("reach", [2, 1 << 15, 1 << 31])
def test_rows_are_grouped_by_all_keys_however_far_their_values_are_apart(reach: int) -> None:
    chance, rows = np.random.default_rng(0), np.zeros(500, ROW)
    for name in KEYS:
        kind = np.iinfo(ROW[name])
        ends = max(kind.min, -reach), min(kind.max, reach - 1)
        rows[name] = chance.choice([0, *ends] if reach > 2 else [0, 1], len(rows))
    groups: dict[tuple[int, ...], int] = {}
    wanted = [groups.setdefault(tuple(row), len(groups)) for row in rows[[*KEYS]].tolist()]
    which, counts = _groups(rows, KEYS)
    assert len({*zip(wanted, which.tolist(), strict=True)}) == len(groups) == len(counts)
    assert counts[which].tolist() == [wanted.count(group) for group in wanted]


def test_a_loss_before_the_rows_stays_a_gap() -> None:
    folding, none = Folding(), np.zeros(0, CONTEXT)
    folding.take(rows_of(64), none, 2)
    rows, _ = folding.take(rows_of(64, 101), none, 2)
    assert rows["seq"][0] - 4 > 1, "36 rows are missing"


def test_rows_of_a_lane_that_begins_stay_as_they_are() -> None:
    folding, contexts = Folding(), np.zeros(1, CONTEXT)
    folding.take(rows_of(64), np.zeros(0, CONTEXT), 2)
    contexts["first"] = 96
    rows, changed = folding.take(rows_of(64, 65), contexts, 2)
    assert len(rows) == 64 and changed["first"][0] == 96 - 60
    assert rows["seq"][32] - changed["first"][0] == 1, "its own count begins"


def test_the_level_follows_what_waits() -> None:
    assert level(0, 100_000, 5.0) == 0 and level(0, 2 << 20, 2.0) == 1
    assert level(1, 5 << 20, 4.0) == 2 and level(2, 2 << 20, 2.0) == 2
    assert level(2, 2 << 20, 0.1) == 0 and level(1, 100_000, 2.0) == 0
    assert level(0, 40 << 20, 0.0) == 2
