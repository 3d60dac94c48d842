"""One of everything that may be added, from a folder of the user's own, and used for real.

A collective algorithm, a strategy, a consistency policy, a recovery policy, a schedule, a task, a
scene, a launcher, a preset, an exercise and a study: a file each (a scene: its folder), found by
its name; no list names any of them.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from textwrap import dedent

import pytest

import workbench as wb
from workbench.common.assets import stage_module
from workbench.common.errors import CollectiveError, SpecError
from workbench.interface import form
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
    "collectives/all_reduce_star.py": '''
        """Star: rank 0 adds up what the others send, and hands out the sum."""

        def takes(p):
            return "" if p <= 6 else "at most 6 ranks"

        def all_reduce(comm, x_N, reduce="SUM"):
            others = range(1, comm.size)
            if comm.rank:
                comm.send(x_N, to=0, step=comm.rank - 1, chunk=0, phase="in")
                comm.recv(x_N, frm=0, step=comm.size - 1, chunk=0, phase="out")
                return x_N
            for peer in others:
                comm.recv(x_N, frm=peer, reduce=reduce, step=peer - 1, chunk=0, phase="in")
            for peer in others:
                comm.send(x_N, to=peer, step=comm.size - 1, chunk=0, phase="out")
            return x_N
    ''',
    "strategies/every_other.py": '''
        """Gradients are averaged in every second iteration only."""

        from dataclasses import dataclass

        import torch.distributed as dist

        from workbench.experiment.traits import Traits

        TRAITS = Traits(title="Every other iteration")

        @dataclass(frozen=True, kw_only=True)
        class Config:
            every: int = 2  # iterations between two averages

        def train(job, config: Config):
            model = job.model()
            optimizer = job.optimizer(model)
            for number, step in enumerate(job.steps()):
                mine = step.ids[job.rank :: job.ranks]
                optimizer.zero_grad()
                loss = job.forward(model, job.load(mine))
                job.backward(loss)
                if number % config.every == 0:
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= job.ranks
                job.update(optimizer)
                job.report(loss, len(mine))
            job.finish(model)
    ''',
    "consistency/pairwise.py": '''
        """A worker may start while it is at most one iteration ahead of the slowest."""

        from workbench.training.parameter_servers.clocks import Policy

        class PAIRWISE(Policy):
            bound = 1

            def may_start(self, worker, iteration, clocks):
                return iteration <= clocks.slowest + 1
    ''',
    "recovery/patient.py": '''
        """Replace lost ranks twice, then go on without them."""

        def recover(failure):
            return failure.replace() if failure.number < 2 else failure.shrink()
    ''',
    "schedules/backwards_first.py": '''
        """Every microbatch forward and backward before the next one."""

        from workbench.training.pipelines.schedule import Action

        def schedule(ranks, microbatches, stages_per_rank):
            return [
                [Action(stage, kind, m) for m in range(microbatches) for kind in "FB"]
                for stage in range(ranks)
            ]
    ''',
    "tasks/line.py": '''
        """A line through made-up points."""

        import torch

        class Task:
            def __init__(self, slope: float = 2.0):
                self.slope = slope

            def model(self):
                return torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Linear(8, 1))

            def dataset(self, split):
                x = torch.linspace(-1, 1, 256).unsqueeze(1)
                return torch.utils.data.TensorDataset(x, self.slope * x)

            def loss(self, model, batch):
                x, y = batch
                return ((model(x) - y) ** 2).mean()
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
    "presets/mine.py": '''
        """An experiment of one's own."""

        from workbench.experiment.spec import Experiment

        GROUP, ORDER = "Mine", 5

        def presets():
            return [("My star", "Which is busy?", lambda: Experiment(all_reduce="star", ranks=3))]
    ''',
    "studies/twice.py": '''
        """Does the same seed give the same losses?"""

        import workbench as wb

        def study(experiment):
            first, second = (wb.run(experiment).wait(120).losses for _ in range(2))
            return first == second
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

        from workbench.common.svg import text

        def facts(run):
            return {"heat": run.spec.get("ranks")}

        def select(rows, facts):
            sends = rows.filter(pl.col("kind") == "send").group_by("rank").len().sort("rank")
            return sends.collect().rows() if facts["heat"] else None

        def draw(selected):
            return [text(16, 56 + 20 * rank, f"{rank} sent {n}") for rank, n in selected]
    ''',
}
TINY = {"task": "line", "iterations": 6, "batch_size": 12, "seed": 3}


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one of each, which the environment names."""
    for name, text in FILES.items():
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


def test_a_policy_holds_back_workers() -> None:
    exp = wb.Experiment(
        strategy="parameter_server", ranks=3, options={"consistency": "pairwise"}, **TINY
    )
    assert len(wb.run(exp).wait(120).losses) == 6


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
    assert re.search(r'\{ \.\.\.\$\d+\.heatScene, name: "heat", label: "Heat", order: 95 \}', text)
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
