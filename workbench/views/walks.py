"""``wb.walk``: a guided walk through a run, in the scenes' own steps or in a lecturer's.

A step is a mapping. What it must have:

    title, text   what the card says; {rank}, {peer}, {chunk} and {ranks} stand for the mark's
    mark          the name of a mark of the scene, as its walk.json lists them; or a list of names,
                  of which the first that is drawn counts

and what it can have:

    scene         the scene that it opens; without it, the one before
    rank, peer    whose mark; where: other fields that the mark must have
    playhead      a share from 0 to 1 of the call on show; with of: run, of the whole run
    number        a query for a number of the run: say, a sentence with {n}; and one of
                  fact: a field of what is known of the run, such as ranks
                  field: of the mark, or of the first of another name (mark)
                  take: sum, count, mean, max, share, or last up to the playhead, of a column
                  (nbytes, duration, value) of the rows of a kind, or of a name; of: call or run;
                  by: [rank, peer] counts those of the mark alone
                  as: bytes, time, share, count or number
    knob          words: of a button that hands over a target: rank or link
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from workbench.common.arguments import Count, Text, checked
from workbench.common.errors import Problem, SpecError, short
from workbench.experiment.yaml_text import parse, read
from workbench.front_end.assets import scene_manifests
from workbench.recording.events import KINDS
from workbench.runs.display_mixin import Shown
from workbench.views.jupyter import Stage
from workbench.views.scenes import first_scene

_OF = ("call", "run")
_TEXTS = ("title", "text")
_FIELDS = (*_TEXTS, *"mark scene rank peer where playhead of number knob".split())
_NUMBER = tuple("say fact field mark take column name kind of by as".split())
_ALLOWED: dict[str, tuple[object, ...]] = {
    "take": ("sum", "count", "mean", "max", "share", "last"),
    "column": ("nbytes", "duration", "value"),
    "kind": KINDS,
    "of": _OF,
    "by": ("rank", "peer"),
    "as": ("bytes", "time", "share", "count", "number"),
    "target": ("rank", "link"),
}


@checked
def walk(
    run: Any,
    steps: Sequence[Mapping[str, Any]] | str | PathLike[str] | None = None,
    *,
    scene: Text = "",
    step: Count = 1,
) -> Any:
    """Return the picture of ``run`` as a notebook's widget that opens a guided walk, at ``step``.

    ``steps``: mappings as views/walks.py lists them, or a YAML file or text of such a list; without
    them the walk is that of ``scene``, by default of the scene in which the run opens. Raises
    SpecError, which names every step, field and mark that cannot be, before anything is shown.

    >>> run = wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB")
    >>> stage = wb.walk(run, step=2)
    """
    is_run: bool = isinstance(run, Shown)
    if not is_run:
        raise SpecError.at("run", "expected a run, live or loaded", run)
    manifests = {one.name: one for one in scene_manifests()}
    if scene and scene not in manifests:
        raise SpecError(problems=[_refused(("scene",), scene, manifests)])
    opens = scene or first_scene(run.store.metadata)
    own = None if steps is None else checked_steps(steps, opens)
    count = len(own if own is not None else manifests[opens].walk.get("steps", ()))
    if step > count:
        raise SpecError.at("step", f"this walk has {count} steps", step)
    stage = Stage(run, own[0]["scene"] if own else opens)
    stage.tell_walk({"key": uuid.uuid4().hex, "at": step - 1, "scene": stage.scene, "steps": own})
    return stage


def checked_steps(steps: Any, scene: str) -> list[dict[str, Any]]:
    """Return the steps of a walk, each with its scene. Raises SpecError with all that is wrong."""
    if isinstance(steps, str | PathLike):
        steps = parse(read(steps if isinstance(steps, str) else str(steps))[0])
    if not isinstance(steps, Sequence) or isinstance(steps, str) or not steps:
        raise SpecError.at("steps", "expected a list of steps, each a mapping", short(steps))
    problems: list[Problem] = []
    result = []
    for i, step in enumerate(steps):
        if not isinstance(step, Mapping):
            problems.append(Problem("expected a mapping", ("steps", i), short(step)))
            continue
        scene = step.get("scene", scene)
        problems += [_placed(one, i) for one in _problems(step, scene)]
        result.append({**step, "scene": scene})
    if problems:
        raise SpecError(problems=problems)
    return result


def _placed(problem: Problem, step: int) -> Problem:
    return Problem(problem.message, ("steps", step, *problem.path), problem.value, problem.allowed)


def _problems(step: Mapping[str, Any], scene: object) -> list[Problem]:
    """Return all that is wrong with one step."""
    manifests = {one.name: one for one in scene_manifests()}
    wrong = _unknown(step, _FIELDS)
    wrong += [
        Problem(f"a step must have a {name}, as text", (name,))
        for name in _TEXTS
        if not isinstance(step.get(name), str)
    ]
    if scene not in manifests:
        return [*wrong, _refused(("scene",), scene, manifests)]
    marks = manifests[str(scene)].walk.get("marks", {})
    for mark in _listed(step.get("mark")):
        if mark not in marks:
            wrong.append(_refused(("mark",), mark, marks, f"the scene {scene} draws no such mark"))
    wrong += [
        Problem("expected a rank's number", (name,), short(step[name]))
        for name in ("rank", "peer")
        if name in step and not _is_number(step[name], int)
    ]
    if not (_is_number(share := step.get("playhead", 0), int | float) and 0 <= share <= 1):
        wrong.append(Problem("expected a share from 0 to 1", ("playhead",), short(share)))
    wrong += _among(step, "of", ())
    for name, fields in (("number", _NUMBER), ("knob", ("words", "target"))):
        if (record := step.get(name)) is None:
            continue
        if not isinstance(record, Mapping):
            wrong.append(Problem("expected a mapping", (name,), short(record)))
            continue
        wrong += _unknown(record, fields, (name,))
        for field in _ALLOWED:
            wrong += _among(record, field, (name,))
        wrong += _number(record, marks) if name == "number" else _knob(record)
    return wrong


def _number(query: Mapping[str, Any], marks: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the query for a number."""
    wrong = []
    if not isinstance(query.get("say"), str) or query["say"].count("{n}") != 1:
        wrong.append(Problem("expected a sentence with {n}", ("number", "say"), short(query)))
    if sum(name in query for name in ("fact", "field", "take")) != 1:
        wrong.append(Problem("expected one of fact, field and take", ("number",), short(query)))
    if "mark" in query and query["mark"] not in marks:
        wrong.append(_refused(("number", "mark"), query["mark"], marks))
    return wrong


def _knob(knob: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(f"a knob must have its {name}", ("knob",))
        for name in ("words", "target")
        if not isinstance(knob.get(name), str)
    ]


def _is_number(value: object, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= 0


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _unknown(
    record: Mapping[str, Any], fields: Sequence[str], path: tuple[str, ...] = ()
) -> list[Problem]:
    return [
        Problem("there is no such field", (*path, str(name)), short(value), tuple(fields))
        for name, value in record.items()
        if name not in fields
    ]


def _among(record: Mapping[str, Any], field: str, path: tuple[str, ...]) -> list[Problem]:
    """Return a problem for each value of a field that is not among those that are allowed."""
    return [
        _refused((*path, field), value, _ALLOWED[field])
        for value in _listed(record.get(field, []))
        if value not in _ALLOWED[field]
    ]


def _refused(
    path: tuple[str, ...], value: object, allowed: Any, words: str = "there is no such value"
) -> Problem:
    listed = tuple(allowed)
    return Problem(f"{words}; there are {', '.join(map(str, listed))}", path, short(value), listed)
