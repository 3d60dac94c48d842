"""Checks of an Experiment whose task names an environment, or whose strategy plays one.

Code is read, not run: whether a task has an environment is seen by its method ``environment``.
"""

from __future__ import annotations

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.fields import Fields
from workbench.experiment.traits import traits_of, with_traits
from workbench.user_code import source
from workbench.user_code.source import Source, split_path


def has_environment(exp: Fields) -> bool | None:
    """Return whether the task names an environment; None: its source does not say."""
    task, name = exp.task, "Task"
    if isinstance(task, Source):
        name = task.name
    elif place := split_path(task):
        name = place[1]
    try:
        methods = source.methods(source.text_of("tasks", task), name)
    except SpecError:  # the run itself says what is wrong with it
        return None
    return None if methods is None else "environment" in methods


def check_environment(exp: Fields) -> None:
    """Check that the strategy plays where the task has an environment, and only there."""
    plays, able = has_environment(exp), traits_of(exp.strategy).plays
    strategy = source.shown(exp.strategy)
    if plays and able == "no":
        raise SpecError.at(
            "strategy",
            f"{strategy} trains on samples, and task {source.shown(exp.task)} has an environment: "
            f"take one of {listed(_playing())}. One of your own plays where its file says "
            'TRAITS = Traits(plays="only")',
            allowed=_playing(),
        )
    if plays:
        _check_fields(exp)
    if plays is False and able == "too" and exp.options:
        why = "are of tasks with an environment, and this task has none: leave them out"
        raise SpecError.at("options", why, dict(exp.options))
    if plays is False and able == "only":
        raise SpecError.at(
            "task",
            f"{source.shown(exp.task)} has no environment(), and strategy {strategy} plays one: "
            "take task='catch', task='gymnasium_game', or your own class with environment() and "
            "model()",
        )
    if plays is False and exp.pad_environment is not None:
        raise SpecError.at(
            "pad_environment",
            f"task {source.shown(exp.task)} has no environment: leave it out, or take pad_compute",
            exp.pad_environment,
        )


def _check_fields(exp: Fields) -> None:
    """Raise SpecError for fields of the experiment that do not go with playing."""
    strategy = source.shown(exp.strategy)
    recovers = traits_of(exp.strategy).recovers != "no"
    alone = f"of {strategy} one rank has all that is trained, and no other rank a copy"
    fitting = with_traits(lambda traits: traits.plays == "only" and traits.recovers != "no")
    others = f"{alone}: leave it out, or take {listed(fitting)}, whose servers recover"
    fixed = "each rank has a role from the beginning on, and none comes or goes: leave it out"
    unfit = {
        "checkpoint": (None if recovers else exp.checkpoint, others),
        "recovery": (exp.recovery if exp.recovers and not recovers else None, others),
        "resume": (exp.resume, "games and replay are in no checkpoint: leave it out"),
        "memory_limit": (exp.memory_limit, f"{strategy} does not measure it: leave it out"),
        "scale_batch": (exp.scale_batch or None, fixed),
        "min_ranks": (exp.min_ranks, fixed),
        "shuffle_buffer": (exp.shuffle_buffer, "transitions are drawn from replay: leave it out"),
        "bad_minibatch": (
            None if exp.bad_minibatch == "keep" else exp.bad_minibatch,
            "transitions are played, not read: leave it out",
        ),
    }
    for name, (value, why) in unfit.items():
        if value is not None:
            raise SpecError.at(name, why, value)
    if exp.backend != "workbench":
        why = f"strategy {strategy} on an environment runs over backend='workbench'"
        raise SpecError.at("backend", why, exp.backend)
    if exp.device not in ("auto", "cpu"):
        why = "environments are played, and networks learn from them, on CPUs: device='cpu'"
        raise SpecError.at("device", why, exp.device)


def _playing() -> list[str]:
    return with_traits(lambda traits: traits.plays != "no")
