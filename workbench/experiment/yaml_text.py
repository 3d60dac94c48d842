"""An Experiment as text: YAML that reads well, and the code that it carries or names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workbench.common.errors import SpecError, short
from workbench.experiment.frozen_model import walk
from workbench.user_code.source import is_code, split_path

# libyaml's parser where PyYAML was built with it: fifteen times as fast, the same values.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OTHER_BREAKS = "\x85\u2028\u2029"  # of lines, to YAML
PROGRAMS = ("program", "remote")  # options of launchers that say what is run
LONGEST_NUMBER = 100  # characters: how long one takes to read grows with their square


@dataclass(frozen=True)
class Bounds:
    """Bounds on the YAML of a text: more is refused before any value is made of it."""

    nodes: int  # values and keys, aliases written out
    depth: int  # of collections inside collections
    characters: int  # of one scalar
    aliases: bool  # also tags: a spec's author may write them, a visitor must not


OF_AN_AUTHOR = Bounds(nodes=100_000, depth=100, characters=10_000_000, aliases=True)
OF_A_VISITOR = Bounds(nodes=4_000, depth=16, characters=2_000, aliases=False)


class Dumper(yaml.SafeDumper):
    """Source in block literals, as it was written."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if any(mark in text for mark in OTHER_BREAKS):  # which a reader would take for "\n"
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


def dump(data: Mapping[str, Any]) -> str:
    """Return the YAML of plain data, its keys in their order."""
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def read(path_or_text: str | Path) -> tuple[str, Path]:
    """Return the text, and the folder that paths in it may be relative to."""
    text = str(path_or_text)
    is_text = "\n" in text or not (
        isinstance(path_or_text, Path) or text.endswith((".yaml", ".yml")) or _is_file(text)
    )
    if is_text:
        return text, Path.cwd()
    try:
        return Path(text).read_text(encoding="utf-8"), Path(text).resolve().parent
    except (OSError, ValueError) as error:  # bytes that are not text, a name that none can have
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"{text} cannot be read: {why}") from None


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or otherwise no name of a file
        return False


def parse(text: str, bounds: Bounds = OF_AN_AUTHOR) -> Any:
    """Return the YAML's plain values. Raise SpecError if it is not YAML, or exceeds ``bounds``.

    An alias may name the same few lines again and again, so that a short text becomes an endless
    one once it is read: what it comes to is counted first.
    """
    loader = None
    try:
        _measure(text, bounds)
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if bounds.aliases and _written_out(node, bounds.nodes, {}) > bounds.nodes:
            raise _too_many(bounds)
        return loader.construct_document(node)
    except SpecError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError, AttributeError) as error:
        if "nesting depth" in str(getattr(error, "problem", "")):  # PyYAML's own limit, from 6.0.4
            raise _too_deep(bounds) from None
        # A date that no calendar has, a number of ten thousand digits: PyYAML passes those on.
        raise SpecError(f"this is not YAML: {_why(error)}") from None
    except RecursionError:
        raise _too_deep(bounds) from None
    finally:
        if loader is not None:
            loader.dispose()


def _why(error: Exception) -> str:
    """Return what is wrong, in one line, with its place where PyYAML knows it."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"


def _too_deep(bounds: Bounds) -> SpecError:
    return SpecError(
        f"this YAML is nested too deeply to be an experiment: {bounds.depth} lists and mappings "
        "inside one another are the most"
    )


def _measure(text: str, bounds: Bounds) -> None:
    """Read the text as a stream of events, and stop at the first that is out of bounds."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=Loader):
        match event:
            case yaml.CollectionEndEvent():
                depth -= 1
                continue
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.ScalarEvent(value=value):
                _measure_scalar(value, event.implicit[0], bounds)
            case yaml.AliasEvent():
                pass
            case _:
                continue
        nodes += 1
        if depth > bounds.depth:
            raise _too_deep(bounds)
        if nodes > bounds.nodes:
            raise _too_many(bounds)
        if not bounds.aliases and (isinstance(event, yaml.AliasEvent) or event.tag):
            raise SpecError("this YAML has an alias (*name) or a tag (!name): write values out")


def _measure_scalar(value: str, plain: bool, bounds: Bounds) -> None:
    if len(value) > bounds.characters:
        raise SpecError(
            f"this YAML has a text of {len(value):,} characters, and {bounds.characters:,} are "
            "the most"
        )
    if plain and len(value) > LONGEST_NUMBER:
        tag = _resolver.resolve(yaml.ScalarNode, value, (True, False))
        if tag != "tag:yaml.org,2002:str":
            raise SpecError(
                f"this YAML has a number of {len(value):,} characters, and {LONGEST_NUMBER} are "
                "the most"
            )


_resolver: Any = yaml.resolver.Resolver()


def _too_many(bounds: Bounds) -> SpecError:
    also = " once its aliases are written out" if bounds.aliases else ""
    return SpecError(
        f"this YAML comes to more than {bounds.nodes:,} values{also}: no experiment has so many"
    )


def _written_out(node: yaml.Node, most: int, known: dict[int, int]) -> int:
    """Return the number of nodes in ``node``; a node that is named twice counts twice."""
    count = known.get(id(node))
    if count is None:
        known[id(node)] = most + 1  # meets itself: without end
        inside = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [one for pair in inside for one in (pair if isinstance(pair, tuple) else (pair,))]
        count = known[id(node)] = 1 + sum(_written_out(one, most, known) for one in parts)
    return count


def as_fields(
    data: Any, where: str, what: str = "an experiment", example: str = "strategy: data_parallel"
) -> dict[str, Any]:
    """Return ``data`` by names of fields, read from ``where``. Raises SpecError for other data."""
    if not isinstance(data, dict):
        raise SpecError(
            f"{short(where)} is not the YAML of {what}, nor a file that holds it: expected lines "
            f"such as `{example}`"
        )
    return {key if isinstance(key, str) else short(key): data[key] for key in data}


def code_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of fields that hold code: a source, a path to it, or a program to run."""
    for name in ("strategy", "task", "all_reduce", "launcher", "options"):
        for one in walk(values.get(name)):
            is_stored = isinstance(one, Mapping) and set(one) == {"name", "code"}
            if is_stored or is_code(one):
                yield name
                break
    options = values.get("launcher_options")
    if isinstance(options, Mapping) and any(name in options for name in PROGRAMS):
        yield "launcher_options"


def beside(values: Mapping[str, Any], folder: Path, always: bool = False) -> dict[str, Any]:
    """Return ``values`` with paths to code found in ``folder``, where they do not exist here."""

    def settle(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: settle(one) for key, one in value.items()}
        if isinstance(value, list):
            return [settle(one) for one in value]
        place = split_path(value) if isinstance(value, str) else None
        if place and (always or not place[0].exists()) and (folder / place[0]).exists():
            return f"{(folder / place[0]).resolve()}:{place[1]}"
        return value

    code = ("strategy", "task", "all_reduce", "launcher", "options")
    return {key: settle(value) if key in code else value for key, value in values.items()}
