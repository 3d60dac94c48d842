"""One of everything that may be added, from a folder of the user's own, and used for real.

A collective algorithm, a strategy, a consistency policy, a recovery policy, a schedule, a task, a
scene, a launcher, a preset, an exercise and a study: a file each (a scene: its folder), found by
its name; no list names any of them.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import workbench as wb
from workbench.common.errors import CollectiveError, SpecError
from workbench.front_end.assets import stage_module
from workbench.interface import form
from workbench.interface.form_fields import is_shown
from workbench.presets.catalogue import presets
from workbench.store.recoveries import recoveries_of
from workbench.studies.finder import study
from workbench.theory import cost_model
from workbench.training.pipelines.schedule import build
from workbench.views.pages.facts import facts, theory
from workbench.views.scenes import scenes
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg

FILES = {
    "recovery/patient.py": '''
        """Replace lost ranks twice, then go on without them."""

        def recover(failure):
            return failure.replace() if failure.number < 2 else failure.shrink()
    ''',
    "launchers/plain.py": '''
        """Ranks as processes of their own, which share no memory with the driver."""

        import os
        import subprocess
        import sys

        from workbench.launchers.processes.elsewhere import AgentLauncher

        class Launcher(AgentLauncher):
            def start(self, count, environment):
                agent = [sys.executable, "-m", "workbench.launchers.processes.agent"]
                own = {**os.environ, **environment}
                self.agents = [subprocess.Popen(agent, env=own) for _ in range(count)]

            def failure(self):
                ended = any(agent.poll() is not None for agent in self.agents)
                return "an agent has ended" if ended else ""

            def close(self, ranks):
                for agent in self.agents:
                    agent.wait()
    ''',
    "exercises/mine.py": '''
        """One exercise, judged by two ranks."""

        import workbench as wb
        from workbench.exercises.answers import number
        from workbench.exercises.exercise import Exercise
        from workbench.exercises.verdict import equal

        def judge(answer):
            run = wb.run(wb.Experiment(ranks=2, iterations=2))
            run.wait(60)
            calls = run.events.filter(kind="collective", group="default", rank=0, iteration=1)
            return [equal("all-reduces", len(calls), answer, "one for each tensor")]

        EXERCISES = (
            Exercise(
                name="99.1", title="How many?", difficulty=1, minutes=1, takes=number("calls"),
                judge=judge, task="Count.", hint="LeNet", solution="Ten.",
            ),
        )
    ''',
    "scenes/heat/scene.json": json.dumps(
        {"label": "Heat", "order": 95, "facts": {"heat": {"found": True}}}
    ),
    "scenes/heat/scene.py": '''
        """Return the number of messages that each rank has sent."""

        import polars as pl

        from workbench.front_end.svg import text

        def facts(run):
            return {"heat": run.spec.get("ranks")}

        def select(rows, facts):
            sends = rows.filter(pl.col("kind") == "send").group_by("rank").len().sort("rank")
            return sends.collect().rows() if facts["heat"] else None

        def draw(selected):
            return [text(16, 56 + 20 * rank, f"{rank} sent {n}") for rank, n in selected]
    ''',
}
EXAMPLE = re.compile(r"^```python\n# (\w+/\w+\.py)\n(.*?)^```$", re.M | re.S)
# One of each of these, as CONTRIBUTING.md has them.
EXAMPLES = dict(EXAMPLE.findall((Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()))
TINY = {"task": "line", "iterations": 6, "batch_size": 12, "seed": 3}


@dataclass(frozen=True, kw_only=True)
class Config:
    fraction: float = 0.5


class Notebook:
    """A policy as a notebook has one."""

    def __init__(self, config: Config) -> None:
        self.least, self.bound = config.fraction, 0 if config.fraction == 1 else None

    def may_start(self, worker: int, iteration: int, clocks: Any) -> bool:
        come = [clock >= iteration for clock in clocks.accepted.values()]
        return sum(come) >= self.least * len(come)


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one of each, which the environment names."""
    for name, text in {**FILES, **EXAMPLES}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    monkeypatch.setenv("WORKBENCH_EXTENSIONS", str(tmp_path))
    return tmp_path


def test_an_algorithm_trains_as_any_other_and_theory_counts_it_in_its_file() -> None:
    run = wb.run(wb.Experiment(ranks=3, all_reduce="star", **TINY))
    result = run.wait(120)
    assert result.losses == pytest.approx(
        wb.run(wb.Experiment(ranks=3, **TINY)).wait(120).losses, rel=1e-5
    )
    sends = run.events.filter(kind="send", collective="all_reduce", algorithm="star")
    calls = sends.filter(rank=1)["op"].n_unique()
    assert sends.group_by("rank").len().sort("rank")["len"].to_list() == [2 * calls, calls, calls]
    for p in (2, 3, 5):
        assert cost_model.steps("star", p) == p
        assert cost_model.bytes_sent("star", p, 4096) == ((p - 1) * 4096, *[4096] * (p - 1))
        counted = theory(p)["all_reduce/star"]
        assert (counted["steps"], counted["share"]) == (p, p - 1)
    with pytest.raises(CollectiveError, match=r"star does not run on 7 ranks: it takes at most 6"):
        cost_model.steps("star", 7)
    assert "all_reduce/star" not in theory(7)
    with pytest.raises(SpecError, match="at most 6 ranks"):
        wb.run(wb.Experiment(ranks=7, all_reduce="star", **TINY))
    assert "star" in wb.why("all_reduce", 4096, 3).seconds, "auto weighs it too"
    planned = wb.plan("all_reduce", "star", ranks=3, nbytes=4096)
    assert planned.events.filter(kind="send").height == 4


def test_a_strategy_and_a_task_run_and_the_form_offers_what_they_take() -> None:
    exp = wb.Experiment(strategy="every_other", ranks=2, options={"every": 3}, **TINY)
    run = wb.run(exp)
    assert len(run.wait(120).losses) == 6
    calls = run.events.filter(kind="collective", rank=0, iteration=1, collective="all_reduce")
    assert not calls.height, "nothing is averaged in iteration 1"
    assert facts(run.store.metadata)["title"] == "Every other iteration"
    field = next(one for one in form.option_fields() if one.name == "options.every")
    assert "every_other" in field.strategies
    offered = {one.name: one for one in form.fields()}
    assert "line" in offered["task"].choices
    assert offered["strategy"].docs["every_other"] == (
        "Gradients are averaged in every second iteration only."
    )


def test_the_guide_has_one_of_each() -> None:
    """That this is what these tests run, and not what they have beside it."""
    kinds = {name.partition("/")[0] for name in EXAMPLES}
    assert kinds == {
        "collectives", "strategies", "consistency", "schedules", "tasks", "studies", "presets",
    }  # fmt: skip
    assert "job.steps" not in "".join(EXAMPLES.values())


@pytest.mark.parametrize(("fraction", "bound"), [(0.5, None), (1, 0)])
def test_a_policy_with_an_option_of_its_own_holds_back_workers(
    fraction: float, bound: int | None
) -> None:
    options = {"consistency": "most", "fraction": fraction}
    exp = wb.Experiment(strategy="parameter_server", ranks=3, options=options, **TINY)
    run = wb.run(exp)
    assert len(run.wait(120).losses) == 6
    server = facts(run.store.metadata)["server"]
    assert (server["consistency"], server["high"]) == ("most", bound)
    assert wb.Experiment.from_yaml(exp.to_yaml()) == exp


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"consistency": "most", "fractio": 1}, r"'fractio' \(did you mean 'fraction'\?\)"),
        ({"consistency": "most", "fraction": 2}, r"options\.fraction = 2\.0: must be from 0 to 1"),
        (
            {"consistency": "most", "fraction": "half"},
            r"options\.fraction = 'half': must be a number",
        ),
        ({"consistency": "bsp", "fraction": 1}, r"'fraction': it is one of consistency 'most'"),
        ({"fraction": 1}, r"'fraction': it is one of consistency 'most'"),
    ],
)
def test_an_option_that_a_policy_does_not_take_is_refused(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        wb.Experiment(strategy="parameter_server", ranks=3, options=options)


def test_the_form_shows_a_policys_options_where_it_is_chosen() -> None:
    field = next(one for one in form.option_fields() if one.name == "options.fraction")
    assert field.help.startswith("of the workers that must have come as far")
    assert (field.kind, field.default, field.policies) == ("float", 0.5, ("most",))
    assert is_shown(field, "parameter_server", "most")
    assert not is_shown(field, "parameter_server", "ssp")
    assert not is_shown(field, "ddp", "most")
    options = {"consistency": "most", "fraction": 0.75}
    exp = wb.Experiment(strategy="parameter_server", ranks=3, options=options)
    values = form.values(exp)
    assert values["options.fraction"] == 0.75
    assert form.experiment(values) == exp
    assert form.experiment({**values, "options.consistency": "ssp"}).options == {
        "consistency": "ssp"
    }


def test_a_policy_given_by_class_or_by_path_has_options_too(mine: Path) -> None:
    exp = wb.Experiment(strategy="parameter_server", ranks=3, **TINY)
    for policy in (Notebook, f"{mine / 'consistency/most.py'}:MOST"):
        run = wb.run(exp.replace(options={"consistency": policy, "fraction": 1}))
        assert len(run.wait(120).losses) == 6
        assert facts(run.store.metadata)["server"]["high"] == 0
        with pytest.raises(
            SpecError, match=r"has no option 'fracton' \(did you mean 'fraction'\?\)"
        ):
            exp.replace(options={"consistency": policy, "fracton": 1})
        with pytest.raises(SpecError, match=r"options\.fraction = 'x': must be a number"):
            wb.run(exp.replace(options={"consistency": policy, "fraction": "x"}))


def test_a_recovery_policy_names_the_next_team() -> None:
    kill = wb.Kill(rank=1, at_iteration=2)
    exp = wb.Experiment(ranks=2, recovery="patient", faults=kill, **TINY)
    run = wb.run(exp)
    assert len(run.wait(120).losses) == 6
    assert [one.fresh for one in recoveries_of(run.store.metadata)] == [(1,)]
    assert "patient" in next(one for one in form.fields() if one.name == "recovery").choices


def test_a_schedule_runs_a_pipeline() -> None:
    assert build("backwards_first", ranks=2, microbatches=3)
    options = {"schedule": "backwards_first", "microbatches": 3, "split": "layers"}
    exp = wb.Experiment(strategy="pipeline", ranks=2, options=options, **TINY)
    assert len(wb.run(exp).wait(120).losses) == 6


def test_a_scene_brings_its_facts_and_its_still_picture() -> None:
    assert [name for name in scenes()][-2:] == ["heat", "pair"]
    run = wb.run(wb.Experiment(ranks=2, **TINY))
    run.wait(120)
    assert facts(run.store.metadata)["heat"] == 2
    picture = svg(select(run.store))
    sent = run.events.filter(kind="send", rank=1).height
    assert sent and f">1 sent {sent}<" in picture


def test_a_manifest_that_is_none_is_named(mine: Path) -> None:
    (mine / "scenes/heat/scene.json").write_text('{"label": "Heat"}')
    with pytest.raises(ValueError, match=r"heat/scene.json is not the manifest.*lacks 'order'"):
        scenes()


def test_a_scene_draws_in_every_page_and_what_is_wrong_with_it_is_said(mine: Path) -> None:
    file = mine / "scenes/heat/scene.js"
    assert "heatScene" not in stage_module(), "it has no tab without one"
    stem = 'import { grouped } from "../../engine/format.js";\n'
    scene = "export const heatScene = { build: (body) => ({ say() {}, draw() {} }) };\n"
    file.write_text(stem + scene)
    text = stage_module()
    assert scene.removeprefix("export ") in text and stem not in text
    assert re.search(
        r'\{ \.\.\.\$\d+\.heatScene, name: "heat", label: "Heat", order: 95, walk: null \}', text
    )
    file.write_text(scene + "const bytes = 1; // as in format.js: a name is its file's own\n")
    stage_module()
    for wrong, words in {
        scene.replace("heatScene", "warmScene"): r"heat/scene\.js has to export heatScene",
        stem + scene + "const grouped = 1;\n": r"heat/scene\.js declares grouped twice",
        stem.replace("grouped", "gruppiert") + scene: r"heat/scene\.js imports gruppiert, which",
        'import * as all from "./draw.js";\n' + scene: r"heat/scene\.js: .*write import \{ name \}",
        'import { map } from "./map.js";\n' + scene: r"scenes/heat/map\.js is in none of",
    }.items():
        file.write_text(wrong)
        with pytest.raises((ImportError, FileNotFoundError), match=words):
            stage_module()


@pytest.mark.full
def test_a_launcher_starts_ranks_that_share_no_memory_with_the_driver() -> None:
    exp = wb.Experiment(ranks=2, **TINY)
    here = wb.run(exp)
    run = wb.run(exp.replace(launcher="plain"))
    there = run.wait(240)
    assert there.losses == here.wait(120).losses and there.bytes_sent == here.result.bytes_sent
    assert run.dropped == 0
    of_ranks = ("send", "recv", "forward", "backward", "optimizer", "load", "collective")
    for kind in of_ranks:
        assert run.events.filter(kind=kind).height == here.events.filter(kind=kind).height, kind


@pytest.mark.full
def test_ranks_elsewhere_are_held_and_killed() -> None:
    run = wb.run(wb.Experiment(ranks=2, launcher="plain", **TINY | {"iterations": 100_000}))
    while run.iteration < 3 and not run.done:
        time.sleep(0.01)
    run.pause()
    while not run.held and not run.done:
        time.sleep(0.01)
    run.resume()
    run.kill(1)
    result = run.wait(120, check=False)
    assert isinstance(result.error, wb.PeerLost) and "rank 1" in str(result.error)
    assert "SIGKILL" in str(result.error)


def test_a_launcher_that_is_not_there_is_refused() -> None:
    with pytest.raises(SpecError, match=r"launcher = 'plane'.*did you mean 'plain'"):
        wb.Experiment(launcher="plane")


def test_a_preset_stands_in_the_form_and_a_study_runs() -> None:
    assert presets()["My star"].group == "Mine"
    assert next(iter(form.presets())) == "My star", "ORDER puts it first"
    assert study("twice")(wb.Experiment(ranks=2, **TINY)) is True
    with pytest.raises(SpecError, match=r"no study 'thrice'.*twice"):
        study("thrice")


def test_an_exercise_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_PROGRESS", str(tmp_path / "exercises.json"))
    assert wb.exercise("99.1").title == "How many?"
    assert not wb.grade("99.1", 9).solved and wb.grade("99.1", 10).solved
    assert wb.progress().solved == ["99.1"]
