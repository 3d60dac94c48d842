"""The fields of the form: what to ask for, made from the Experiment's schema.

fields()         every field, in the order of a form
option_fields()  those of the strategies' options among them
shown_value()    what a field shows of a value of an Experiment
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from workbench.common import syntax
from workbench.experiment import options as form_options
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import title_of
from workbench.interface import lines as form_lines
from workbench.interface.fault_lines import FAULT_PHRASES
from workbench.interface.form_labels import (
    EXAMPLES,
    FIELD_SUGGESTIONS,
    NAMED_QUANTITY,
    OPTION_PLACES,
    PLACES,
    SUGGESTIONS,
)
from workbench.user_code import source
from workbench.user_code.source import Source


@dataclass(frozen=True)
class Field:
    """One thing to ask for. Its value is a number, a bool or a text; None where left out."""

    name: str  # in the values: "ranks", "network.latency"
    label: str
    group: str
    kind: str  # int | float | text | choice | bool
    default: Any
    help: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    docs: Mapping[str, str] = field(default_factory=dict)  # a choice -> what it is, in a line
    labels: Mapping[str, str] = field(default_factory=dict)  # a choice -> as people write it
    takes_path: bool = False  # of a choice: a path to Python code is a value as well
    suggestions: tuple[str, ...] = ()  # of a text: values to pick from; others are typed
    phrases: tuple[str, ...] = ()  # of lines: such to begin with
    minimum: float | None = None
    maximum: float | None = None
    optional: bool = False  # may be left out: None, or an empty text
    plain: bool = False  # of a text: it is the value as it is, and no list
    lines: int = 1  # of a text, how many lines to offer
    example: str = ""  # of a text
    advanced: bool = False
    strategies: tuple[str, ...] = ()  # that have this option
    policies: tuple[str, ...] = ()  # of consistency, that have it; none of either: no such option


POLICY_FIELD = f"options.{form_options.POLICY}"
_FOLDERS = {
    "strategy": ("strategies", "", ()),
    "task": ("tasks", "", ()),
    "all_reduce": ("collectives", "all_reduce_", ("auto",)),
    "launcher": ("launchers", "", ()),
    "recovery": ("recovery", "", ()),
}
_OWN_CHOICES = {"device": ("auto", "cpu", "cuda")}
LINES: dict[str, tuple[Callable[..., str | None], Callable[[str], Any], str]] = {
    "network.links": (form_lines.print_links, form_lines.parse_links, form_lines.LINKS_HELP),
    "network.levels": (form_lines.print_levels, form_lines.parse_levels, form_lines.LEVELS_HELP),
    "network.between": (
        form_lines.print_between,
        form_lines.parse_between,
        form_lines.BETWEEN_HELP,
    ),
    "faults": (form_lines.print_faults, form_lines.parse_faults, form_lines.FAULTS_HELP),
    "options": (form_lines.print_options, form_lines.parse_options, "one per line, name: value"),
    "task_options": (
        form_lines.print_options,
        form_lines.parse_options,
        "one per line, name: value",
    ),
    "launcher_options": (
        form_lines.print_options,
        form_lines.parse_options,
        "one per line, name: value",
    ),
    "checkpoint": (
        form_lines.print_checkpoint,
        form_lines.parse_checkpoint,
        form_lines.CHECKPOINT_HELP,
    ),
    "pad_compute": (form_lines.print_pad, form_lines.parse_pad, form_lines.PAD_HELP),
}
_PHRASES = {"network.links": form_lines.LINK_PHRASES, "faults": FAULT_PHRASES}
_ONE_LINE = ("pad_compute", "network.levels", "network.between")


def fields() -> list[Field]:
    """Return every field of an Experiment, in the order of a form; those of its network are fields
    of their own.
    """
    schema = _schema()
    known_fields: dict[str, Mapping[str, Any]] = {}
    for name, about in schema["properties"].items():
        if name == "network":
            parts = schema["$defs"]["Network"]["properties"]
            known_fields |= {f"network.{part}": one for part, one in parts.items()}
        else:
            known_fields[name] = about
    start = Experiment()
    known = [name for name in PLACES if name in known_fields]
    rest = [name for name in known_fields if name not in PLACES]
    built = [_field(name, known_fields[name], _shown_of(start, name)) for name in [*known, *rest]]
    after = next((at for at, one in enumerate(built) if one.group != "Training"), len(built))
    return [*built[:after], *option_fields(), *built[after:]]


@cache
def _schema() -> dict[str, Any]:
    return Experiment.model_json_schema()


def option_fields() -> tuple[Field, ...]:
    """Return a field for each option of each strategy and of each policy."""
    names = [source.available(folder) for folder in ("strategies", form_options.POLICY)]
    return _option_fields(*map(tuple, names))


@cache
def _option_fields(strategies: tuple[str, ...], policies: tuple[str, ...]) -> tuple[Field, ...]:
    """Return the fields while these are the files: one may be added at any time."""
    of_strategies, of_policies = form_options.holders()
    return tuple(
        _option_field(one, of_strategies.get(name, ()), of_policies.get(name, ()))
        for name, one in form_options.all_options().items()
    )


def _option_field(
    option: form_options.Option, strategies: tuple[str, ...], policies: tuple[str, ...]
) -> Field:
    bare = option.name.replace("_", " ").capitalize()
    label, unit, advanced = OPTION_PLACES.get(option.name, (bare, "", True))
    choices, docs = option.choices, dict[str, str]()
    if option.folder:
        choices, docs = _files(option.folder, "", ())
    labels = {name: label_of(name) for name in choices}
    return Field(
        name=f"options.{option.name}",
        label=label,
        group="Training",
        kind=option.kind,
        default=form_options.shown(option.default),
        help=option.help or label,
        unit=unit,
        choices=choices,
        docs=docs,
        labels=labels,
        takes_path=bool(option.folder),
        suggestions=SUGGESTIONS.get(option.name, ()),
        optional=option.default is None,
        plain=option.plain,
        advanced=advanced,
        strategies=strategies,
        policies=policies,
    )


def is_shown(about: Field, strategy: Any, policy: Any) -> bool:
    """Return whether a form shows a field beside this strategy and this consistency policy."""
    if not about.strategies and not about.policies:
        return True
    if strategy in about.strategies or policy not in about.policies:
        return strategy in about.strategies
    return strategy in form_options.strategies_with(form_options.POLICY)  # reads their files


def _field(name: str, about: Mapping[str, Any], default: Any) -> Field:
    bare = name.replace("network.", "").replace("_", " ").capitalize()
    label, group, unit, advanced = PLACES.get(name, (bare, "More", "", True))
    variants = about.get("anyOf", [about])
    kinds = [one.get("type", "") for one in variants]
    bounds = {key: value for one in variants for key, value in one.items()}
    help_ = str(about.get("description", ""))
    choices, docs = tuple(bounds.get("enum", _OWN_CHOICES.get(name, ()))), dict[str, str]()
    if name in _FOLDERS:
        choices, docs = _files(*_FOLDERS[name])
    if name in NAMED_QUANTITY:
        help_ = f"{help_}; or that of a real link, by its name"
    if name in LINES:
        help_ = f"{help_}; {LINES[name][2]}" if "options" in name else LINES[name][2]
    return Field(
        name=name,
        label=label,
        group=group,
        kind="choice" if choices else _kind(kinds),
        default=default,
        help=help_,
        unit=unit,
        choices=choices,
        docs=docs,
        labels={one: label_of(one, name, docs.get(one, "")) for one in choices},
        takes_path=name in _FOLDERS,
        phrases=_PHRASES.get(name, ()),
        suggestions=FIELD_SUGGESTIONS.get(name, ()),
        minimum=bounds.get("minimum"),
        maximum=bounds.get("maximum"),
        optional="null" in kinds,
        lines=3 if name in LINES and name not in _ONE_LINE else 1,
        example=EXAMPLES.get(name, ""),
        advanced=advanced,
    )


def _kind(types: list[str]) -> str:
    for type_, kind in (("boolean", "bool"), ("integer", "int"), ("number", "float")):
        if type_ in types:
            return kind
    return "text"


def _files(
    folder: str, prefix: str, also: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of a folder's files with the first line of each one's docstring (read, not
    run).
    """
    names = source.available(folder, prefix)
    return (*names, *also), {name: _doc_of(folder, name, prefix) for name in names}


def label_of(choice: str, field: str = "", doc: str = "") -> str:
    """Return a choice as people write it: a strategy's title, how a task's docstring begins."""
    if field == "strategy":
        return title_of(choice)
    if field == "task" and doc:
        return re.split(r"[:,.] ", doc.rstrip("."))[0]
    return choice.replace("_", "-")


@cache
def _doc_of(folder: str, name: str, prefix: str) -> str:
    return _first_line(source.text_of(folder, name, prefix))


def _first_line(code: str) -> str:
    paragraph = (ast.get_docstring(syntax.parse(code)) or "").split("\n\n")[0]
    return " ".join(paragraph.replace("``", "").split())  # the source's own marks are not words


def _shown_of(exp: Experiment, name: str) -> Any:
    """Return what the field ``name`` shows of ``exp``."""
    part = name.removeprefix("network.")
    return shown_value(name, getattr(exp if part == name else exp.network, part))


def shown_value(name: str, value: Any) -> Any:
    """Return what the field ``name`` shows of a value; options that carry code are kept whole."""
    if name not in LINES:
        return value
    if any(isinstance(one, Source) for one in (value.values() if "options" in name else ())):
        return value
    return LINES[name][0](value)
