"""Scenarios: what goes wrong, by iteration, by time, by event or drawn; what was done is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import ROOT, lenet
from workbench.interface import lines


def faults_of(run: wb.Run) -> pl.DataFrame:
    rows = run.events.with_columns(pl.col("kind", "name", "group").cast(pl.String))
    return rows.filter(pl.col("kind") == "fault").sort("start_ns")


SCENARIO = """
faults:
- {fault: kill, rank: 2, at_iteration: 10}
- {fault: freeze, rank: 1, after: 1.5 s, seconds: 0.5}
- {fault: preempt, rank: 1, when: {rank: 2, step: 3}}
- {fault: cut, source: 0, target: 1, at_iteration: 4, seconds: 0.3}
- {fault: partition, ranks: [0, 1], at_iteration: 5}
- {fault: slow, rank: 3, factor: 2, at_iteration: 2, seconds: 1}
- {fault: corrupt, rank: 0, at_iteration: 7, kind: raises}
rates: {kill: 0.1, cut: 0.3}
seed: 4
"""


def test_a_scenario_is_its_yaml_and_its_faults_are_lines_of_the_form(tmp_path: Path) -> None:
    scenario = wb.Scenario.from_yaml(SCENARIO)
    assert scenario.to_yaml(tmp_path / "scenario.yaml")
    assert wb.Scenario.from_yaml(tmp_path / "scenario.yaml") == scenario
    assert scenario.faults[2] == wb.Preempt(rank=1, when=wb.When(rank=2, step=3))
    exp = scenario.on(lenet(ranks=4, iterations=12, recovery="shrink"))
    assert wb.Experiment.from_yaml(exp.to_yaml()) == exp
    assert "null" not in exp.to_yaml()
    assert lines.parse_faults(lines.print_faults(exp.faults)) == exp.faults
    assert repr(scenario.faults[0]) == "Kill(rank=2, at_iteration=10)"


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    exp = lenet(ranks=4, iterations=60, recovery="shrink", bad_minibatch="skip")
    kinds = dict.fromkeys(("kill", "freeze", "slow", "cut", "partition", "corrupt", "preempt"), 0.2)
    drawn = [wb.Scenario(rates=kinds, seed=seed).drawn(exp) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {one.fault for one in drawn[0]} == kinds.keys()
    for faults in drawn:
        lost = {one.rank for one in faults if isinstance(one, wb.Kill | wb.Preempt)}
        assert len(lost) < exp.ranks, "one is always left"
    alone = wb.Scenario(rates={"kill": 1.0}).drawn(lenet(ranks=3, iterations=20))
    assert len(alone) == 1, "which ends the run"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("faults: [{fault: kill, rank: 9, at_iteration: 1}]", "no rank 9; ranks=4 are 0 to 3"),
        ("faults: [{fault: melt, rank: 1, at_iteration: 1}]", "'kill', 'freeze', 'slow'"),
        ("faults: [{fault: kill, rank: 1}]", "say when: at_iteration=10"),
        ("faults: [{fault: kill, rank: 1, at_iteration: 1, after: 2 s}]", "is another moment"),
        ("faults: [{fault: kill, rank: 1, at_iteration: 99}]", "never happens"),
        ("faults: [{fault: kill, rank: 1, when: {rank: 8, step: 1}}]", "no rank 8"),
        ("faults: [{fault: cut, source: 1, target: 1, after: 1 s}]", "a link joins two ranks"),
        ("faults: [{fault: partition, ranks: [0, 1, 2, 3], after: 1 s}]", "these are all ranks"),
        ("faults: [{fault: corrupt, rank: 1, after: 1 s}]", "Corrupt has no field 'after'"),
        ("rates: {melt: 0.1}", "rates"),
        ("rates: {kill: 2}", "rates"),
        ("fault: kill", "Scenario has no field 'fault'"),
        ("- kill", "not the YAML of a scenario"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_before_anything_starts(text: str, words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        wb.Scenario.from_yaml(text + "\n").on(lenet(ranks=4))


def test_a_scenario_is_added_and_not_given_as_a_fault() -> None:
    with pytest.raises(wb.SpecError, match=r"scenario\.on\(experiment\)"):
        lenet(faults=wb.Scenario())


def test_a_rank_is_killed_in_the_step_that_was_named() -> None:
    """Once: the process that replaces it comes to the step again, and goes on."""
    event = wb.When(rank=2, step=3, from_iteration=2)
    exp = lenet(
        ranks=4, iterations=6, recovery="replace", faults=wb.Kill(rank=2, when=event), seed=3
    )
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert len(result.losses) == 6 and len(set(result.digests.values())) == 1
    (struck,) = faults_of(run).rows(named=True)
    assert (struck["rank"], struck["name"]) == (2, "kill")
    rows = run.events.with_columns(pl.col("kind", "collective", "group").cast(pl.String))
    before = rows.filter(
        pl.col("rank") == 2, pl.col("generation") == 0, pl.col("kind") == "recv"
    ).sort("end_ns")
    last = before.filter(pl.col("collective") == "all_reduce")[-1]
    assert (last["iteration"][0], last["step"][0]) == (2, 2), "the last that it received"


def test_a_rank_is_frozen_when_another_is_in_a_step() -> None:
    event = wb.When(rank=0, step=1, from_iteration=3)
    run = wb.run(lenet(ranks=3, faults=wb.Freeze(rank=2, when=event, seconds=0.3)))
    assert run.wait(timeout=60).ok
    (struck,) = faults_of(run).rows(named=True)
    assert struck["lane"] == "experiment", "it is not the user's doing"
    assert (struck["rank"], struck["peer"], struck["name"], struck["value"]) == (
        -1,
        2,
        "freeze",
        0.3,
    )


def test_links_are_cut_and_ranks_slowed_at_their_iteration_and_for_their_time() -> None:
    faults = [
        wb.Cut(source=0, target=1, at_iteration=2, seconds=0.2),
        wb.NetworkPartition(ranks=(2,), at_iteration=4, seconds=0.2),
        wb.Slow(rank=1, factor=3, at_iteration=1, seconds=0.1),
    ]
    run = wb.run(lenet(ranks=3, iterations=8, faults=faults))
    assert run.wait(timeout=90).ok
    rows = faults_of(run)
    cut = rows.filter(pl.col("name") == "cut")["group"].to_list()
    assert cut[0] == "0->1" and set(cut[1:]) == {"2->0", "2->1", "0->2", "1->2"}
    restored = rows.filter(pl.col("name") == "link")["group"].to_list()
    assert sorted(restored) == sorted(cut)
    assert rows.filter(pl.col("name") == "slow")["value"].to_list() == [3, 1]
    first = rows.filter(pl.col("group") == "0->1")
    lasted = (first["start_ns"][1] - first["start_ns"][0]) / 1e9
    assert lasted >= 0.2
    computed = run.events.filter(
        pl.col("kind").cast(pl.String) == "forward", pl.col("rank") == 0
    ).sort("iteration")
    struck = first["start_ns"][0]
    began = computed.filter(pl.col("iteration") == 2)["start_ns"][0]
    before = computed.filter(pl.col("iteration") == 1)["end_ns"][0]
    assert before < struck < began, "as rank 0 begins iteration 2, and it waits until it is so"


def test_faults_strike_at_their_time() -> None:
    faults = [
        wb.Preempt(rank=1, after="0.2 s"),
        wb.Freeze(rank=0, after="0.1 s", seconds=0.2),
        wb.Slow(rank=2, factor=2, after="10 ms"),
    ]
    exp = lenet(ranks=3, iterations=4000, recovery="shrink", faults=faults)
    run = wb.run(exp)
    from tests.live import until

    until(lambda: 1 in run.result.lost or len(run.recovery()), 60, "the rank leaves")
    run.stop()
    result = run.wait(timeout=60)
    assert result.ok
    rows = faults_of(run).filter(pl.col("rank") == -1)
    assert rows.select("name", "peer").rows() == [("slow", 2), ("freeze", 0), ("preempt", 1)]


@pytest.mark.full
def test_the_command_takes_a_scenario(tmp_path: Path) -> None:
    lenet(ranks=2, iterations=3).to_yaml(tmp_path / "spec.yaml")
    program = str(Path(sys.executable).parent / "workbench")
    command = [program, "run", str(tmp_path / "spec.yaml"), "--scenario"]

    def run(text: str) -> Any:
        (tmp_path / "scenario.yaml").write_text(text)
        return subprocess.run(
            [*command, str(tmp_path / "scenario.yaml")],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
        )

    refused = run("faults: [{fault: kill, rank: 9, at_iteration: 1}]\n")
    assert refused.returncode == 1 and "no rank 9" in refused.stderr + refused.stdout
    killed = run("faults: [{fault: kill, rank: 1, at_iteration: 1}]\n")
    assert killed.returncode == 1 and "was killed by SIGKILL" in killed.stderr + killed.stdout
