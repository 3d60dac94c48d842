"""An Experiment as text: YAML that reads well, and the code that it carries or names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import SpecError
from workbench.record import walk
from workbench.source import Source, split_path

MOST_NODES = 100_000  # of a text's YAML, its aliases written out


class Dumper(yaml.SafeDumper):
    """Source in block literals, as it was written."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


def read(path_or_text: str | Path) -> tuple[str, Path]:
    """The text, and the folder that paths in it may be relative to."""
    text = str(path_or_text)
    is_text = "\n" in text or not (
        isinstance(path_or_text, Path) or text.endswith((".yaml", ".yml")) or _is_file(text)
    )
    if is_text:
        return text, Path.cwd()
    try:
        return Path(text).read_text(encoding="utf-8"), Path(text).resolve().parent
    except (OSError, ValueError) as error:  # bytes that are no text, a name that none can have
        raise SpecError(f"the spec {text} cannot be read: {error}") from None


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or otherwise no name of a file
        return False


def parse(text: str) -> Any:
    """What the YAML says, in plain values. SpecError where it is none, or would never end.

    An alias may name the same few lines again and again, so that a short text becomes an endless
    one once it is read: what it comes to is counted first.
    """
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if (nodes := _written_out(node, {})) > MOST_NODES:
            raise SpecError(
                f"this YAML comes to {nodes:,} values once its aliases are written out, and "
                f"{MOST_NODES:,} are the most: no experiment has so many"
            )
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError, OverflowError, AttributeError) as error:
        # A date that no calendar has, a number of ten thousand digits: PyYAML passes those on.
        raise SpecError(f"this is not YAML: {error}") from None
    except RecursionError:
        raise SpecError("this YAML is nested too deeply to be an experiment") from None
    finally:
        if loader is not None:
            loader.dispose()


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are in ``node``, one that is named twice counted twice."""
    count = known.get(id(node))
    if count is None:
        known[id(node)] = MOST_NODES + 1  # meets itself: without end
        inside = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [one for pair in inside for one in (pair if isinstance(pair, tuple) else (pair,))]
        count = known[id(node)] = 1 + sum(_written_out(one, known) for one in parts)
    return count


def code_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Names of the fields that hold code: a source, or a path to it."""
    for name in ("strategy", "task", "all_reduce", "options"):
        for one in walk(values.get(name)):
            is_source = isinstance(one, Source | Mapping) and (
                isinstance(one, Source) or set(one) == {"name", "code"}
            )
            if is_source or (isinstance(one, str) and split_path(one)):
                yield name
                break


def beside(values: Mapping[str, Any], folder: Path, always: bool = False) -> dict[str, Any]:
    """``values`` with paths to code found in ``folder``, where they do not exist from here."""

    def settle(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: settle(one) for key, one in value.items()}
        if isinstance(value, list):
            return [settle(one) for one in value]
        place = split_path(value) if isinstance(value, str) else None
        if place and (always or not place[0].exists()) and (folder / place[0]).exists():
            return f"{(folder / place[0]).resolve()}:{place[1]}"
        return value

    code = ("strategy", "task", "all_reduce", "options")
    return {key: settle(value) if key in code else value for key, value in values.items()}
