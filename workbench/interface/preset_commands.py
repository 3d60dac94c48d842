"""The command ``presets``, and the experiment that ``run`` is asked for: of a file, of a preset, or
of a checkpoint.

Heavy imports wait inside the functions, so that ``workbench --help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.common.units import counted
from workbench.interface.command_line import fail

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

Name = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="The experiment of a preset: `workbench presets` lists their names.",
        metavar="NAME",
    ),
]

StopAfter = Annotated[
    str | None,
    typer.Option(help="Stop after so much time of training, such as '10 s'.", metavar="DURATION"),
]


def presets() -> None:
    """List the presets: experiments to begin with. Each has a name, its ranks, the scene that its
    run opens in, and what to look for.
    """
    from workbench.common.errors import WorkbenchError
    from workbench.presets import catalogue
    from workbench.views.scenes import first_scene, scenes

    group, labels = "", {name: scene.label for name, scene in scenes().items()}
    try:
        for one in catalogue.presets().values():
            if one.group != group:
                group = one.group
                print(f"\n{group}")
            spec = {"experiment": one.experiment.to_yaml(), **one.facts()}
            ranks, scene = counted(one.experiment.ranks, "rank"), labels[first_scene(spec)]
            print(f"  {one.name} · {ranks} · opens in {scene}\n    {one.words}")
    except WorkbenchError as error:
        fail(error)
    print('\nRun one: workbench run --preset "A slow link" --html run.html')


def experiment_of(
    spec: Path | None,
    preset: str | None,
    resume: Path | None,
    scenario: Path | None,
    allow_code: bool,
    stop_after: str | None,
) -> tuple[Experiment, dict[str, str]]:
    """Return what to run, with a scenario's faults; and what a run of a preset keeps of it."""
    from workbench.common.errors import SpecError
    from workbench.experiment.scenario import Scenario
    from workbench.experiment.spec import Experiment
    from workbench.presets.catalogue import named
    from workbench.runs.checkpoints import experiment_of as of_checkpoint

    facts: dict[str, str] = {}
    if spec is not None and preset is not None:
        raise SpecError(f"{spec} and --preset are two experiments: give one of them")
    if spec is not None and not spec.exists():
        raise SpecError(f"{spec}: there is no such file{_preset_hint(str(spec))}")
    if preset is not None:
        chosen = named(preset)
        experiment, facts = chosen.experiment, chosen.facts()
    elif spec is not None:
        experiment = Experiment.from_yaml(spec, allow_code=allow_code)
    elif resume is not None:
        experiment = of_checkpoint(resume, allow_code=allow_code)
    else:
        raise SpecError("name the experiment's YAML file, --preset NAME, or --resume FOLDER")
    if resume is not None and experiment.resume is None:
        experiment = experiment.replace(resume=str(resume))
    if scenario is not None:
        experiment = Scenario.from_yaml(scenario).on(experiment)
    if stop_after is not None:
        experiment = experiment.replace(stop_after=stop_after)
    return experiment, facts


def _preset_hint(word: str) -> str:
    """Return how to run the preset that a word names; "" if it names none."""
    from workbench.common.errors import SpecError
    from workbench.presets.catalogue import named

    try:
        return f'; a preset has this name: workbench run --preset "{named(word).name}"'
    except SpecError:
        return ""
