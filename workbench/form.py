"""A form for an Experiment, for any user interface: fields, presets, values and what is wrong.

    fields()            what to ask for, made from the Experiment's schema: a new field of spec.py
                        appears by itself
    values(exp)         an Experiment as what the fields show
    experiment(values)  and back. FormError names the field that cannot be
    presets()           experiments to begin with
    as_code, to_link, from_link

Links and faults are texts of a few lines (form_lines.py). Each option of a strategy is a field of
its own (form_options.py), "options.servers", which counts while its strategy is chosen; a text
takes the options that have none. What carries code of the user's own is kept as it is: a form can
show its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from workbench import form_lines, form_options, source
from workbench.errors import SpecError
from workbench.presets import Preset, presets
from workbench.source import Source
from workbench.spec import Experiment, Network
from workbench.spec_code import as_code, as_program
from workbench.spec_link import from_link, to_link

__all__ = [
    "Field", "FormError", "Preset", "as_code", "as_program", "experiment", "fields", "from_link",
    "presets", "to_link", "values",
]  # fmt: skip


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
    minimum: float | None = None
    maximum: float | None = None
    optional: bool = False  # may be left out: None, or an empty text
    lines: int = 1  # of a text, how many lines to offer
    example: str = ""  # of a text
    advanced: bool = False
    strategies: tuple[str, ...] = ()  # that it belongs to; none: it is there whatever is chosen


class FormError(SpecError):
    """What cannot be: ``fields`` has a sentence for each field that is wrong, "" for the rest."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("\n".join(fields.values()))
        self.fields = dict(fields)


# name -> (label, group, unit, advanced). What is not here comes last, as advanced.
_PLACES = {
    "strategy": ("Strategy", "Training", "", False),
    "task": ("Task", "Training", "", False),
    "all_reduce": ("All-reduce", "Training", "", False),
    "ranks": ("Ranks", "Training", "", False),
    "iterations": ("Iterations", "Training", "", False),
    "batch_size": ("Minibatch", "Training", "samples", False),
    "network.latency": ("Latency", "Links and faults", "", False),
    "network.bandwidth": ("Bandwidth", "Links and faults", "", False),
    "network.links": ("Links that differ", "Links and faults", "", False),
    "network.levels": ("Hosts", "Links and faults", "", True),
    "network.between": ("Between hosts", "Links and faults", "", True),
    "faults": ("What goes wrong", "Links and faults", "", False),
    "pad_compute": ("Pad computing to", "Time", "", True),
    "optimizer": ("Optimizer", "Training", "", True),
    "lr": ("Learning rate", "Training", "", True),
    "warmup": ("Warm-up", "Training", "updates", True),
    "reference_batch": ("Learning rate is for", "Training", "samples", True),
    "momentum": ("Momentum", "Training", "", True),
    "seed": ("Seed", "Training", "", True),
    "dtype": ("Numbers", "Training", "", True),
    "options": ("Further options of the strategy", "Training", "", True),
    "task_options": ("Options of the task", "Training", "", True),
    "chunk_bytes": ("Piece of a chunk", "Communication", "bytes", True),
    "backend": ("Backend", "Communication", "", True),
    "device": ("Device", "Machine", "", True),
    "threads": ("Threads of a rank", "Machine", "", True),
    "bind": ("Cores of its own for each rank", "Machine", "", True),
    "memory_limit": ("Memory of a rank", "Machine", "", True),
    "timeout": ("Give up after", "Time", "", True),
    "record": ("Record events", "Machine", "", True),
}
# name -> (label, unit, advanced) of a strategy's option; what is not here is advanced.
_OPTION_PLACES = {
    "consistency": ("Consistency", "", False),
    "servers": ("Servers", "ranks", False),
    "staleness": ("Staleness", "iterations", False),
    "staleness_max": ("Staleness at most", "iterations", True),
    "dssp_mode": ("DSSP's controller", "", True),
    "placement": ("Shares of the servers", "", False),
    "stale_gradients": ("Stale gradients", "", True),
    "drop_above": ("Drop above", "updates", True),
    "bucket_cap_mb": ("Bucket", "MiB", False),
    "ahead": ("Ask ahead", "minibatches", False),
    "examples": ("Examples", "", True),
    "schedule": ("Schedule", "", False),
    "microbatches": ("Microbatches", "", False),
    "split": ("Split", "", False),
    "stages_per_rank": ("Stages of a rank", "", False),
    "replicas": ("Replicas", "", False),
    "every": ("Average every", "iterations", False),
    "graph": ("Graph", "", False),
    "pairs": ("Pairs", "", False),
    "dataflow": ("Dataflow", "", False),
    "cb": ("Scatter every", "iterations", False),
    "peers": ("Peers of a rank", "", False),
    "scatter": ("Scatter", "", True),
    "wait": ("Wait for all peers", "", True),
    "mix": ("Mix parameters", "the update", True),
    "spread": ("Apart at first", "", True),
    "outer_lr": ("Outer learning rate", "", False),
    "outer_momentum": ("Outer momentum", "", False),
    "ratio": ("Share that is sent", "", False),
    "feedback": ("Keep the rest", "", False),
    "threshold": ("Fuse up to", "", False),
    "cycle": ("Look every", "", False),
}
_FOLDERS = {
    "strategy": ("strategies", "", ()),
    "task": ("tasks", "", ()),
    "all_reduce": ("collectives", "all_reduce_", ("auto",)),
}
_OWN_CHOICES = {"device": ("auto", "cpu", "cuda")}
_LINES: dict[str, tuple[Callable[..., str | None], Callable[[str], Any], str]] = {
    "network.links": (form_lines.print_links, form_lines.parse_links, form_lines.LINKS_HELP),
    "network.levels": (form_lines.print_levels, form_lines.parse_levels, form_lines.LEVELS_HELP),
    "network.between": (
        form_lines.print_between,
        form_lines.parse_between,
        form_lines.BETWEEN_HELP,
    ),
    "faults": (form_lines.print_faults, form_lines.parse_faults, form_lines.FAULTS_HELP),
    "options": (form_lines.print_options, form_lines.parse_options, "one a line, name: value"),
    "task_options": (form_lines.print_options, form_lines.parse_options, "one a line, name: value"),
    "pad_compute": (form_lines.print_pad, form_lines.parse_pad, form_lines.PAD_HELP),
}
_ONE_LINE = ("pad_compute", "network.levels", "network.between")
_EXAMPLES = {
    "network.links": "0->1: 20 ms",
    "network.levels": "4 x 2",
    "network.between": "1 ms, 100 Mbit/s",
    "faults": "slow rank 2 x8",
    "options": "bucket_cap_mb: 0.05",
}
_NAMED = re.compile(r"\w+\.(\w+)([^\s=:]*)(?: = (?:.*?))?: (.*)", re.S)


# ---- what to ask for


def fields() -> list[Field]:
    """Every field of an Experiment, in the order of a form; those of its network each by itself."""
    schema = _schema()
    found: dict[str, Mapping[str, Any]] = {}
    for name, about in schema["properties"].items():
        if name == "network":
            parts = schema["$defs"]["Network"]["properties"]
            found |= {f"network.{part}": one for part, one in parts.items()}
        else:
            found[name] = about
    known = [name for name in _PLACES if name in found]
    start = values(Experiment())
    rest = [name for name in found if name not in _PLACES]
    made = [_field(name, found[name], start[name]) for name in [*known, *rest]]
    after = next((at for at, one in enumerate(made) if one.group != "Training"), len(made))
    return [*made[:after], *option_fields(), *made[after:]]


@cache
def _schema() -> dict[str, Any]:
    return Experiment.model_json_schema()


@cache
def option_fields() -> tuple[Field, ...]:
    """A field for each option of each strategy."""
    return tuple(_option_field(one) for one in form_options.all_options().values())


def _option_field(option: form_options.Option) -> Field:
    bare = option.name.replace("_", " ").capitalize()
    label, unit, advanced = _OPTION_PLACES.get(option.name, (bare, "", True))
    choices, docs = option.choices, dict[str, str]()
    if option.folder:
        choices, docs = _files(option.folder, "", ())
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
        optional=option.default is None,
        advanced=advanced,
        strategies=form_options.strategies_with(option.name),
    )


def _field(name: str, about: Mapping[str, Any], default: Any) -> Field:
    bare = name.replace("network.", "").replace("_", " ").capitalize()
    label, group, unit, advanced = _PLACES.get(name, (bare, "More", "", True))
    variants = about.get("anyOf", [about])
    kinds = [one.get("type", "") for one in variants]
    bounds = {key: value for one in variants for key, value in one.items()}
    help_ = str(about.get("description", ""))
    choices, docs = tuple(bounds.get("enum", _OWN_CHOICES.get(name, ()))), dict[str, str]()
    if name in _FOLDERS:
        choices, docs = _files(*_FOLDERS[name])
    if name in _LINES:
        help_ = f"{help_}; {_LINES[name][2]}" if "options" in name else _LINES[name][2]
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
        minimum=bounds.get("minimum"),
        maximum=bounds.get("maximum"),
        optional="null" in kinds,
        lines=3 if name in _LINES and name not in _ONE_LINE else 1,
        example=_EXAMPLES.get(name, ""),
        advanced=advanced,
    )


def _kind(types: list[str]) -> str:
    for type_, kind in (("boolean", "bool"), ("integer", "int"), ("number", "float")):
        if type_ in types:
            return kind
    return "text"


@cache
def _files(
    folder: str, prefix: str, also: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Names of a folder's files, and the first line of each one's docstring (read, not run)."""
    names = source.available(folder, prefix)
    docs = {name: _first_line(source.text_of(folder, name, prefix)) for name in names}
    return (*names, *also), docs


def _first_line(code: str) -> str:
    paragraph = (ast.get_docstring(ast.parse(code)) or "").split("\n\n")[0]
    return " ".join(paragraph.split())


# ---- values


def values(exp: Experiment) -> dict[str, Any]:
    """What the fields show of ``exp``. Code of the user's own stays a Source."""
    shown: dict[str, Any] = {}
    for name in type(exp).model_fields:
        if name == "network":
            for part in Network.model_fields:
                shown[f"network.{part}"] = _shown(f"network.{part}", getattr(exp.network, part))
        elif name == "options":
            shown |= _shown_options(exp)
        else:
            shown[name] = _shown(name, getattr(exp, name))
    return shown


def _shown_options(exp: Experiment) -> dict[str, Any]:
    """A value for each field of an option, and "options" for what none of them shows. That a
    default was said is not kept.
    """
    fields = {one.name: one for one in option_fields()}
    shown, rest = {name: one.default for name, one in fields.items()}, {}
    for key, value in exp.options.items():
        name, told = f"options.{key}", form_options.shown(value)
        ours = name in fields and exp.strategy in fields[name].strategies
        if ours and fields[name].choices:  # a schedule may be a grid, which is no name
            ours = isinstance(value, Source) or len(str(value).split()) == 1
        if ours and isinstance(told, str | int | float | Source):
            shown[name] = told
        else:
            rest[key] = value
    return shown | {"options": _shown("options", rest)}


def _shown(name: str, value: Any) -> Any:
    if name not in _LINES:
        return value
    if any(isinstance(one, Source) for one in (value.values() if "options" in name else ())):
        return value  # options that carry code: kept whole
    return _LINES[name][0](value)


def experiment(values: Mapping[str, Any]) -> Experiment:
    """The Experiment of these values; what is not among them is as by default.

    Texts are as people type them: " 8 " is a number where one is asked for, "" leaves out what
    may be. Raises FormError, a SpecError.
    """
    wrong: dict[str, str] = {}
    plain: dict[str, Any] = {}
    known = {one.name: one for one in fields()}
    chosen = values.get("strategy")
    strategy = (chosen.strip() if isinstance(chosen, str) else chosen) or known["strategy"].default
    for name, value in values.items():
        if name not in known:
            raise FormError({"": f"the form has no field {name!r}. It has: {', '.join(known)}"})
        if known[name].strategies and strategy not in known[name].strategies:
            continue  # of a strategy that is not chosen
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
    told = {
        name.removeprefix("options."): value for name, value in options.items()
        if form_options.shown(value) != known[name].default
    }  # fmt: skip
    if told and isinstance(plain.get("options", {}), Mapping):
        options = {**plain.get("options", {}), **told}
        plain["options"] = _in_order(options, plain.get("strategy"))
    made = None
    try:
        if network:
            plain["network"] = Network(**network)
    except SpecError as error:
        wrong = _by_field(str(error), "network.") | wrong
    try:
        made = Experiment(**plain)
    except SpecError as error:
        wrong = _by_field(str(error)) | wrong
    if wrong or made is None:
        raise FormError(wrong)
    return made


def _in_order(options: Mapping[str, Any], strategy: Any) -> dict[str, Any]:
    """As the strategy's Config has them, so that the same form gives the same code."""
    named = strategy in source.available("strategies")
    known = [*(form_options.options_of(strategy) if named else form_options.all_options())]
    place = {name: at for at, name in enumerate(known)}
    return {name: options[name] for name in sorted(options, key=lambda n: place.get(n, len(known)))}


_LEFT_OUT = object()


def _read(about: Field, value: Any) -> Any:
    """A value as the Experiment wants it; what is not understood goes on, to be refused there."""
    if not isinstance(value, str):
        return _LEFT_OUT if value is None and not about.optional else value
    text = value.strip()
    if about.name in _LINES:
        return _LINES[about.name][1](text)
    if not text:
        return None if about.optional else _LEFT_OUT
    if about.strategies and about.kind in ("float", "text"):
        return form_options.read(form_options.all_options()[about.name.partition(".")[2]], text)
    if about.kind == "int" and re.fullmatch(r"[+-]?\d[\d_]*", text):
        return int(text)
    if about.kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def _by_field(message: str, prefix: str = "") -> dict[str, str]:
    """A SpecError's lines by the field that they name; ``prefix`` comes before its name there."""
    found: dict[str, str] = {}
    first, *rest = message.splitlines()
    for line in [one.strip() for one in rest] if first.endswith("cannot be:") else [message]:
        named = _NAMED.match(line)
        name, inside, words = (prefix + named[1], named[2], named[3]) if named else ("", "", line)
        if named and " with options." in line[: named.start(3)]:
            words = line.removeprefix("Experiment.")
        if name == "options" and (own := _option_in(inside, line)):
            name, inside, words = own
        if name == "network":  # links and hosts depend on how many ranks there are
            part = "levels" if inside.startswith(".levels") else "links"
            name, inside = f"network.{part}", inside.removeprefix(f".{part}")
        known = (*_PLACES, *Experiment.model_fields, *(one.name for one in option_fields()))
        if name and name not in known:
            name, words = "", line
        if inside:
            words = f"{_place(inside)}: {words}"
        if name in ("network.levels", "network.between"):
            words = re.sub(r"levels=\((\d[\d, ]*)\)", _typed_levels, words)
            words = words.replace("levels=()", "no hosts at all")
        found[name] = f"{found[name]}\n{words}" if name in found else words
    return found


def _option_in(inside: str, line: str) -> tuple[str, str, str] | None:
    """Which option's field a line about options is for; (field, place in it, words)."""
    names = [one.name.removeprefix("options.") for one in option_fields()]
    if (key := inside.removeprefix(".")) in names:
        words = line.partition(f"options.{key}")[2]
        named = _NAMED.match(line)
        return f"options.{key}", "", named[3] if named and ". Allowed: " not in line else words
    # A Config's own words begin with the option: "servers = 0: it is 1 or more".
    own = re.search(rf"[}}…]: (({'|'.join(map(re.escape, names))})\b.*)", line, re.S)
    return (f"options.{own[2]}", "", own[1]) if own else None


def _typed_levels(found: re.Match[str]) -> str:
    """ "levels=(4, 2)" as it is typed here: 4 x 2."""
    return form_lines.print_levels(int(one) for one in re.findall(r"\d+", found[1]))


def _place(path: str) -> str:
    """Which of several is meant: '["0->5"]' is "0->5", "[1].rank" is "line 2"."""
    if arrow := re.search(r"\d+->\d+", path):
        return arrow[0]
    number = re.match(r"\[(\d+)\]", path)
    return f"line {int(number[1]) + 1}" if number else path.strip(".")
