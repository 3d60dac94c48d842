"""A form for an Experiment, for any user interface: fields, presets, values and what is wrong.

    fields()            what to ask for (form_fields.py), made from the Experiment's schema: a new
                        field of experiment/spec.py appears by itself
    values(exp)         an Experiment as what the fields show
    experiment(values)  and back. FormError names the field that cannot be
    presets()           experiments to begin with
    as_code, to_link, from_link

Links and faults are texts of a few lines (interface/lines.py). Each option of a strategy is a field
of its own (experiment/options.py), "options.servers", which counts while its strategy is chosen; a
text takes the options that have none. What carries code of the user's own is kept as it is: a form
can show its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from workbench.common.errors import Problem, SpecError
from workbench.common.units import counted
from workbench.experiment import options as form_options
from workbench.experiment.named_links import NAMED
from workbench.experiment.python_text import as_code, as_program
from workbench.experiment.spec import Experiment, Network
from workbench.experiment.web_link import Allow, from_link, to_link
from workbench.interface import lines as form_lines
from workbench.interface.form_fields import (
    LINES,
    POLICY_FIELD,
    Field,
    fields,
    is_shown,
    option_fields,
    shown_value,
)
from workbench.interface.form_labels import NAMED_QUANTITY, PLACES
from workbench.presets.catalogue import Preset, presets
from workbench.user_code import source
from workbench.user_code.source import Source

__all__ = [
    "Field",
    "FormError",
    "Preset",
    "as_code",
    "as_program",
    "experiment",
    "fields",
    "from_link",
    "option_fields",
    "presets",
    "to_link",
    "values",
]


class FormError(SpecError):
    """Wrong input: ``fields`` has a sentence for each wrong field, "" for the rest."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(
            problems=[Problem(words, _path(name)) for name, words in fields.items()],
            message="\n".join(fields.values()),
        )
        self.fields = dict(fields)


def _path(name: str) -> tuple[str, ...]:
    """Return the path of a field of the form: ("network", "latency")."""
    return tuple(name.split(".")) if name else ()


def values(exp: Experiment) -> dict[str, Any]:
    """Return what the fields show of ``exp``. The user's own code stays a Source."""
    shown: dict[str, Any] = {}
    for name in type(exp).model_fields:
        if name == "network":
            for part in Network.model_fields:
                shown[f"network.{part}"] = shown_value(
                    f"network.{part}", getattr(exp.network, part)
                )
        elif name == "options":
            shown |= _shown_options(exp)
        else:
            shown[name] = shown_value(name, getattr(exp, name))
    return shown


def _shown_options(exp: Experiment) -> dict[str, Any]:
    """Return a value for each field of an option, and under "options" those that no field shows.
    That a default was given explicitly is not kept.
    """
    fields = {one.name: one for one in option_fields()}
    policy = exp.options.get(form_options.POLICY, fields[POLICY_FIELD].default)
    shown, rest = {name: one.default for name, one in fields.items()}, {}
    for key, value in exp.options.items():
        name, text = f"options.{key}", form_options.shown(value)
        ours = name in fields and is_shown(fields[name], exp.strategy, policy)
        if ours and fields[name].choices:  # a schedule may be a grid, which is not a name
            ours = isinstance(value, Source) or len(str(value).split()) == 1
        if ours and isinstance(text, str | int | float | Source):
            shown[name] = text
        else:
            rest[key] = value
    return shown | {"options": shown_value("options", rest)}


def experiment(values: Mapping[str, Any], allow: Allow = lambda fields: None) -> Experiment:
    """Build the Experiment of these values; missing values take their default.

    Texts are as people type them: " 8 " is a number where one is asked for, "" leaves out what
    may be. ``allow`` is shown the fields before an Experiment is made of them and checked: it
    raises what it refuses. Raises FormError, a SpecError.
    """
    plain, network, wrong = _fields_of(values)
    allow({**plain, "network": network} if network else plain)
    exp = None
    try:
        if network:
            plain["network"] = Network(**network)
    except SpecError as error:
        wrong = _by_field(error, "network") | wrong
    try:
        exp = Experiment(**plain)
    except SpecError as error:
        wrong = _by_field(error) | wrong
    if wrong or exp is None:
        raise FormError(wrong)
    return exp


def _fields_of(
    values: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the fields of an Experiment and of its Network as these values say, and what is wrong,
    by field of the form.
    """
    wrong: dict[str, str] = {}
    plain: dict[str, Any] = {}
    known = {one.name: one for one in fields()}
    chosen = values.get("strategy")
    strategy = (chosen.strip() if isinstance(chosen, str) else chosen) or known["strategy"].default
    policy = values.get(POLICY_FIELD) or known[POLICY_FIELD].default
    for name, value in values.items():
        if name not in known:
            raise FormError({"": f"the form has no field {name!r}. It has: {', '.join(known)}"})
        if not is_shown(known[name], strategy, policy):
            continue  # of a strategy or policy that is not chosen
        try:
            read = _read(known[name], value)
        except SpecError as error:
            wrong[name] = str(error)
        else:
            plain |= {} if read is _LEFT_OUT else {name: read}
    network = {
        name.removeprefix("network."): plain.pop(name)
        for name in [*plain]
        if name.startswith("network.")
    }
    options = {name: plain.pop(name) for name in [*plain] if name.startswith("options.")}
    field_values = {
        name.removeprefix("options."): value
        for name, value in options.items()
        if form_options.shown(value) != known[name].default
    }
    if field_values and isinstance(plain.get("options", {}), Mapping):
        options = {**plain.get("options", {}), **field_values}
        plain["options"] = _in_order(options, plain.get("strategy"))
    return plain, network, wrong


def _in_order(options: Mapping[str, Any], strategy: Any) -> dict[str, Any]:
    """Order the options as the strategy's Config has them, so that the same form gives the same
    code.
    """
    named = strategy in source.available("strategies")
    known = [*(form_options.options_of(strategy) if named else form_options.all_options())]
    place = {name: at for at, name in enumerate(known)}
    return {name: options[name] for name in sorted(options, key=lambda n: place.get(n, len(known)))}


EASY_RANKS = 64, 16  # that start without a question: so many, and so many for each core
RANK_BYTES = 100_000_000  # of a rank with a small model: what its process and its mailboxes take


def question(exp: Experiment) -> str:
    """Return what to ask before so many ranks are started on this machine; "": nothing."""
    cores = os.cpu_count() or 1
    if exp.launcher != "local" or exp.ranks <= max(EASY_RANKS[0], EASY_RANKS[1] * cores):
        return ""
    memory = exp.ranks * RANK_BYTES / 1e9
    where = counted(cores, "core")
    return f"{counted(exp.ranks, 'rank')} on {where}: about {memory:,.0f} GB. Start them anyway?"


NO_CODE = "# This cannot be run yet: see the fields in red."
_LEFT_OUT = object()


def _read(about: Field, value: Any) -> Any:
    """Convert a value to what the Experiment takes; a value that is not understood is passed on, to
    be refused there.
    """
    if not isinstance(value, str):
        return _LEFT_OUT if value is None and not about.optional else value
    text = value.strip()
    if about.name in LINES:
        return LINES[about.name][1](text)
    if about.name in NAMED_QUANTITY and text in NAMED:
        return NAMED[text][NAMED_QUANTITY[about.name]]
    if not text:
        return None if about.optional else _LEFT_OUT
    if about.name.startswith("options.") and about.kind in ("float", "text") and not about.plain:
        return form_options.read(about.kind, text)
    if about.kind == "int" and re.fullmatch(r"[+-]?\d[\d_]*", text):
        return int(text)
    if about.kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def _by_field(error: SpecError, *above: str) -> dict[str, str]:
    """Return what ``error`` says, by the field of the form that it belongs beside, "" for the rest.
    ``above``: the path of the record that it is about.
    """
    messages: dict[str, str] = {}
    for problem in error.problems:
        name, inside = _field_at((*above, *problem.path))
        words = problem.message
        if name == "network.levels" and problem.allowed:
            levels: Any = problem.allowed[0]
            words = f"{words}. Such as {form_lines.print_levels(levels)}"
        if inside:
            words = f"{_place(inside)}: {words}"
        messages[name] = f"{messages[name]}\n{words}" if name in messages else words
    return messages


def _field_at(path: tuple[str | int, ...]) -> tuple[str, tuple[str | int, ...]]:
    """Return the field of the form that a path leads to, and the rest of the path in it; "" where
    the form has no such field.
    """
    name = ".".join(map(str, path[:2]))
    if name in (*PLACES, *(one.name for one in option_fields())):
        return name, path[2:]
    name = str(path[0]) if path else ""
    return (name, path[1:]) if name in Experiment.model_fields and name != "network" else ("", ())


def _place(inside: tuple[str | int, ...]) -> str:
    """Return which of several is meant: "line 2" of faults, "0->5" of links."""
    first, *_ = inside
    return f"line {first + 1}" if isinstance(first, int) else ".".join(map(str, inside))
