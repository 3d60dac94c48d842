"""Why ranks were idle, gap by gap: Python and the page say the same of the same rows, to the last
nanosecond; and where in a rank's time a reason is.
"""

from __future__ import annotations

import base64
import json
import math
import random
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import workbench as wb
from tests.live import ROOT, lenet
from tests.synthetic import table
from tests.views.chart_rows import BLANK
from tests.views.test_holdings import node
from workbench.recording.events import KINDS
from workbench.store.table import Names, from_frame
from workbench.training.pipelines import bubble
from workbench.training.pipelines.idle import Idle, Order, Span, split
from workbench.training.pipelines.schedule import Action, Schedule, build
from workbench.training.pipelines.theory import follow
from workbench.views.packing import pack

MS = 10**6
START = 10**12
CAUSES = {"warm": "warm_up", "imbalance": "imbalance", "comm": "communication", "fault": "fault"}
KIND = {"F": "forward", "I": "backward", "B": "backward", "W": "weight_grad"}
TIME = {"F": 10, "I": 9, "W": 7, "B": 16}  # ms


class Case(NamedTuple):
    """A run as it might have been."""

    name: str = "1f1b"
    ranks: int = 4
    microbatches: int = 8
    stages_per_rank: int = 1
    replicas: int = 1
    hop: float = 0.0  # ms
    noise: float = 0.0
    slow: tuple[int, float] = (0, 1.0)  # a stage, and how many times as long it takes
    pads: bool = False
    still: tuple[int, float, float] | None = None  # a rank stands still: from, for how many ms

    @property
    def schedule(self) -> Schedule:
        return build(
            self.name,
            ranks=self.ranks,
            microbatches=self.microbatches,
            stages_per_rank=self.stages_per_rank,
        )


def spans(case: Case, seed: int, start: int = 0) -> dict[Action, Span]:
    """Return when each action was done, in ns."""
    chance, schedule = random.Random(seed), case.schedule
    stage, factor = case.slow

    def lasts(one: Action) -> float:
        long = TIME[one.kind] * (factor if one.stage == stage else 1)
        return round(long * MS * (1 + case.noise * chance.uniform(-1, 1)))

    return {
        one.action: (start + round(one.start_s), start + round(one.end_s))
        for one in follow(schedule, lasts, case.hop * MS)
    }


def rows(case: Case, iterations: int = 2) -> pl.DataFrame:
    """The table of a run; a rank that stands still in an action is late with it and with all the
    rest.
    """
    schedule, events = case.schedule, list[dict[str, Any]]()
    for replica in range(case.replicas):
        at = START + replica * 300_000
        for iteration in range(iterations):
            done = spans(case, 10 * replica + iteration, at)
            for one, (start, end) in sorted(done.items(), key=lambda item: item[1]):
                rank = replica * case.ranks + schedule.rank_of[one.stage]
                when = {"start_ns": start, "end_ns": end, "iteration": iteration, "rank": rank}
                what = {"stage": one.stage, "microbatch": one.microbatch, "kind": KIND[one.kind]}
                events.append(BLANK | when | what | {"name": "input" if one.kind == "I" else ""})
            at = max(end for _, end in done.values()) + MS
    if case.still:
        rank, begin, lasts = case.still
        when = {"start_ns": START + round(begin * MS), "end_ns": START + round(begin * MS)}
        fault = {"kind": "fault", "name": "freeze", "rank": rank, "value": lasts / 1e3}
        events.append(BLANK | when | fault)
    return table([one | {"seq": seq} for seq, one in enumerate(events)])


def facts(case: Case) -> dict[str, Any]:
    schedule = case.schedule
    return {
        "schedule": schedule.name,
        "flush": True,
        "ranks": case.ranks,
        "replicas": case.replicas,
        "stages": schedule.stages,
        "microbatches": case.microbatches,
        "rank_of": schedule.rank_of,
        "rows": [[str(one) for one in row] for row in schedule.rows],
        "peaks": schedule.peaks,
        "pads_ms": [TIME[kind] for kind in "FIW"] if case.pads else None,
        "bubble": None,
    }


IdleTimes = dict[tuple[int, int], list[Idle]]  # of each iteration and replica, from its start on


def python_says(events: pl.DataFrame, plan_facts: dict[str, Any]) -> IdleTimes:
    """By idle.py, with the replicas and iterations that bubble.py finds."""
    schedule = Schedule.from_facts(plan_facts)
    assert schedule is not None
    order, still, pads = Order(schedule), bubble.frozen_spans(events), plan_facts["pads_ms"]
    idle_times: IdleTimes = {}
    for (replica, iteration), part in bubble.actions(events, schedule).group_by(
        "replica", "iteration"
    ):
        done = {
            Action.parse(row["action"]): (row["start_ns"], row["end_ns"])
            for row in part.iter_rows(named=True)
        }
        of_replica = {rank - replica * schedule.ranks: some for rank, some in still.items()}
        of_replica = {
            place: some for place, some in of_replica.items() if 0 <= place < schedule.ranks
        }
        first = min(start for start, _ in done.values())
        idle_times[iteration, replica] = [
            Idle(place, why, start - first, end - first)
            for place, why, start, end in split(
                order, done, of_replica, pads and [one * 1e6 for one in pads]
            )
        ]
    return idle_times


def page_says(runs: list[tuple[pl.DataFrame, dict[str, Any]]], folder: Path) -> list[Any]:
    """By the page's own code, of each (events, what the header tells of the pipeline)."""
    tables = []
    for events, plan_facts in runs:
        names, origin = Names(), int(events["start_ns"].min())  # type: ignore[arg-type]
        header, block = pack(from_frame(events, names.number), origin)
        header |= {"kinds": KINDS, "strings": {"first": 0, "texts": names.since(0)}}
        data = base64.b64encode(block).decode()
        tables.append({"header": header, "bytes": data, "facts": plan_facts})
    file = folder / "tables.json"
    file.write_text(json.dumps(tables))
    script = ROOT / "tests" / "js" / "idle_truth.mjs"
    done = subprocess.run([node(), script, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def agree(events: pl.DataFrame, plan_facts: dict[str, Any], page: list[dict[str, Any]]) -> None:
    """Gap by gap, and the shares of each rank."""
    expected = python_says(events, plan_facts)
    assert {(one["iteration"], one["replica"]) for one in page} == set(expected)
    pads = plan_facts["pads_ms"] and [one * 1e6 for one in plan_facts["pads_ms"]]
    schedule = Schedule.from_facts(plan_facts)
    assert schedule is not None
    parts = bubble.measure(events, schedule, pads_ns=pads).parts
    for one in page:
        key = one["iteration"], one["replica"]
        mine = [Idle(place, CAUSES[why], start, end) for place, why, start, end in one["idle"]]
        assert sorted(mine) == sorted(expected[key])
        for share in one["shares"]:
            rank = one["replica"] * plan_facts["ranks"] + share["place"]
            row = parts.filter(iteration=one["iteration"], rank=rank).row(0, named=True)
            assert row["whole_ns"] == share["whole"] and row["busy_ns"] == share["busy"]
            assert {name: row[f"{name}_ns"] for name in CAUSES.values()} == {
                CAUSES[why]: share[why] for why in CAUSES
            }


CASES = [
    Case(),
    Case(hop=2.5),
    Case(hop=2.5, noise=0.3),
    Case(slow=(2, 1.3), pads=True, hop=1),
    Case("gpipe", 8, 3, hop=2, noise=0.1),
    Case("interleaved_1f1b", 2, 4, 2, hop=1.7, noise=0.2, slow=(3, 1.5)),
    Case("zb_h1", hop=1.1, noise=0.05, pads=True),
    Case("zbv", 2, 4, 2, hop=3, noise=0.2),
    Case("dualpipe_v", 2, 8, 2, hop=3, noise=0.2),
    Case(replicas=2, noise=0.2, hop=2, slow=(1, 1.2)),
    Case("1f1b", 1, 3),
    Case("1f1b", 4, 1, hop=2),
    Case(hop=2, noise=0.1, still=(1, 40, 35)),
    Case("gpipe", hop=2, noise=0.1, still=(3, 3, 200), replicas=2),
]


def test_python_and_the_page_say_the_same_to_the_nanosecond(tmp_path: Path) -> None:
    runs = [(rows(case), facts(case)) for case in CASES]
    for (events, plan_facts), page in zip(runs, page_says(runs, tmp_path), strict=True):
        assert len(page) == 2 * plan_facts["replicas"]
        agree(events, plan_facts, page)


def test_they_do_of_a_real_run_with_a_slow_stage_and_one_that_stood_still(tmp_path: Path) -> None:
    options = {"schedule": "interleaved_1f1b", "stages_per_rank": 2, "replicas": 2}
    exp = lenet(
        strategy="pipeline",
        ranks=4,
        iterations=4,
        pad_compute="12 ms",
        options=options | {"microbatches": 4},
        network=wb.Network(latency="1 ms"),
        faults=[wb.Slow(rank=1, factor=1.4), wb.Freeze(rank=3, at_iteration=2, seconds=0.1)],
    )
    run = wb.run(exp)
    run.wait(timeout=60)
    plan_facts = json.loads(run.store.metadata["pipeline"])
    [page] = page_says([(run.events, plan_facts)], tmp_path)
    assert len(page) == 4 * 2
    agree(run.events, plan_facts, page)
    assert any(share["imbalance"] > 0 for one in page for share in one["shares"])


def test_a_freeze_by_the_driver_lasts_as_long_as_it_says_or_until_the_thaw() -> None:
    marks = [("freeze", 2, 0.003), ("freeze", 9, math.nan), ("thaw", 12, math.nan)]
    fault = BLANK | {"kind": "fault", "rank": -1, "peer": 1, "iteration": -1}
    events = [
        fault | {"name": name, "value": value, "start_ns": at * MS, "end_ns": at * MS, "seq": seq}
        for seq, (name, at, value) in enumerate(marks)
    ]
    spans = bubble.frozen_spans(table(events))
    assert spans == {1: [(2 * MS, 5 * MS), (9 * MS, 12 * MS)]}


def of(case: Case, still: dict[int, list[Span]] | None = None) -> list[Idle]:
    pads = [TIME[kind] * MS for kind in "FIW"] if case.pads else None
    return split(Order(case.schedule), spans(case, 1), still, pads)


@pytest.mark.parametrize("hop", [0.5, 2.5, 20])
def test_messages_alone_are_never_imbalance(hop: float) -> None:
    for name in ("1f1b", "gpipe", "zb_h1"):
        whys = {one.why for one in of(Case(name, hop=hop))}
        assert whys == {"warm_up", "communication"}


def test_warm_up_is_where_the_schedule_has_its_gaps() -> None:
    """K-1 forwards before the last rank's first action, as many backwards after its last one."""
    gaps = [one for one in of(Case(slow=(1, 1.2), pads=True)) if one.place == 3]
    first, last = gaps[0], [one for one in gaps if one.why == "warm_up"][-1]
    assert (first.why, first.start, first.end) == ("warm_up", 0, 30 * MS)
    assert last.end - last.start == 3 * 16 * MS
    assert [one.why for one in gaps].count("warm_up") == 2
    assert sum(one.end - one.start for one in gaps if one.why == "imbalance") > 0


def test_a_rank_that_stands_still_between_its_actions_is_a_fault_there() -> None:
    case = Case(hop=4)
    gap = next(one for one in of(case) if one.place == 2 and one.why == "communication")
    middle = (gap.start + 1 * MS, gap.start + 3 * MS)
    gaps = [one for one in of(case, {2: [middle]}) if one.place == 2]
    assert Idle(2, "fault", *middle) in gaps
    assert Idle(2, "communication", middle[1], gap.end) in gaps


def test_a_rank_that_waits_for_one_that_stood_still_waits_for_a_fault_afterwards_too() -> None:
    """Rank 1 stands still before its first action: rank 0 gets its gradients that much later."""
    case, late = Case(pads=True), 100 * MS
    schedule, done = case.schedule, spans(case, 1)
    started = done[Action(1, "F", 0)][0]
    moved = follow(
        schedule, lambda one: TIME[one.kind] * MS + late * (one == Action(1, "F", 0))
    )  # the same as if that one lasted longer; it does not
    then = {one.action: (round(one.start_s), round(one.end_s)) for one in moved}
    then[Action(1, "F", 0)] = started + late, then[Action(1, "F", 0)][1]
    pads = [TIME[kind] * MS for kind in "FIW"]
    gaps = split(Order(schedule), then, {1: [(started, started + late)]}, pads)
    assert not [one for one in gaps if one.why in ("imbalance", "communication")]
    for place in range(4):
        lost = sum(one.end - one.start for one in gaps if (one.place, one.why) == (place, "fault"))
        assert lost == late
