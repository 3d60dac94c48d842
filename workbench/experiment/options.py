"""The options of every strategy, and of every consistency policy that has some of its own: read
from its ``Config``, which is not run.

    consistency: str | Source = "bsp"  # when a worker may go on
    name         what it may be  default # what it means

A ``Literal`` is a choice, and so is an option that names a file of a folder.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from workbench.common.errors import SpecError
from workbench.experiment.traits import stored_strategy
from workbench.experiment.yaml_text import OF_A_VISITOR, parse
from workbench.user_code import source
from workbench.user_code.source import Source

POLICIES = {
    "consistency": "consistency",
    "schedule": "schedules",
}  # options that name a file: where
POLICY = "consistency"  # the one of them whose files may have options of their own
_KINDS = {"int": "int", "float": "float", "bool": "bool"}


@dataclass(frozen=True)
class Option:
    """One field of a Config. ``kind``: int | float | bool | choice | text."""

    name: str
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    folder: str = ""  # that the choices are files of
    plain: bool = False  # its value is a text, and never a list or a number that is written as one


def options_of(strategy: str | Source) -> Mapping[str, Option]:
    """Return a strategy's options by name; empty if it has none."""
    return _options(source.module_of("strategies", strategy))


def stored_options(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a stored experiment, defaults of its strategy included as far as its
    source is there.
    """
    try:
        options = options_of(stored_strategy(spec.get("strategy")))
    except SpecError:
        options = {}
    defaults = {name: option.default for name, option in options.items()}
    return defaults | dict(spec.get("options") or {})


@lru_cache(64)
def _options(code: str) -> Mapping[str, Option]:
    for node in source.parsed(code, "the file of a strategy or policy").body:
        if isinstance(node, ast.ClassDef) and node.name == "Config":
            comments = _comments(code)
            result = [_option(one, comments) for one in node.body if isinstance(one, ast.AnnAssign)]
            return {one.name: one for one in result if one is not None}
    return {}


def own_options(strategy: str | Source, options: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options that are not the strategy's, but its consistency policy's. ``options``: of
    an experiment, which name the policy.
    """
    try:
        known, policy = options_of(strategy), policy_named(strategy, options)
        own = {} if policy is None else _options(source.module_of(POLICY, policy))
    except SpecError:  # there is no such file
        return {}
    return {name: option for name, option in own.items() if name not in known}


def policy_named(strategy: str | Source, options: Mapping[str, Any]) -> str | Source | None:
    """Return the consistency policy that an experiment's options name, or its strategy has; None of
    a strategy without one.
    """
    if (option := options_of(strategy).get(POLICY)) is None:
        return None
    policy = options.get(POLICY, option.default)
    return policy if isinstance(policy, str | Source) else None


def policies_with(option: str) -> tuple[str, ...]:
    """Return the consistency policies that have an option of this name, and not their strategy."""
    return holders()[1].get(option, ())


def strategies_with(option: str) -> tuple[str, ...]:
    """Return the strategies that have an option of this name."""
    return tuple(name for name in source.available("strategies") if option in options_of(name))


def holders() -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """Return the strategies that have an option, by its name, and the consistency policies that
    have it where their strategy does not: each file is read once.
    """
    every = {name: options_of(name) for name in source.available("strategies")}
    beside = {name for options in every.values() if POLICY in options for name in options}
    policies = {
        policy: [name for name in _options(source.text_of(POLICY, policy)) if name not in beside]
        for policy in source.available(POLICY)
    }
    return _by_option(every), _by_option(policies)


def _by_option(of: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Return which have an option, by its name. ``of``: the options of each."""
    result: dict[str, tuple[str, ...]] = {}
    for holder, options in of.items():
        for name in options:
            result[name] = (*result.get(name, ()), holder)
    return result


def all_options() -> dict[str, Option]:
    """Return the options of all strategies and policies by name; the first one's where names
    repeat.

    Where defaults differ the option may be left out, and its help says what each has then.
    """
    every: dict[str, dict[str, Option]] = {}
    policies_by_option = holders()[1]
    for strategy in source.available("strategies"):
        for name, option in options_of(strategy).items():
            every.setdefault(name, {})[strategy] = option
    for policy in source.available(POLICY):
        for name, option in _options(source.text_of(POLICY, policy)).items():
            if policy in policies_by_option.get(name, ()):
                every.setdefault(name, {})[policy] = option
    return {name: _joined(options) for name, options in every.items()}


def _joined(options: Mapping[str, Option]) -> Option:
    """Return the option that strategies or policies share. ``options``: that of each."""
    first = next(iter(options.values()))
    defaults: dict[Any, list[str]] = {}
    for strategy, option in options.items():
        defaults.setdefault(option.default, []).append(strategy)
    if len(defaults) == 1:
        return first
    each = "; ".join(f"{_literal(value)} ({', '.join(of)})" for value, of in defaults.items())
    help_ = f"{first.help}; left out: {each}"
    plain = all(option.plain for option in options.values())
    return replace(first, kind="text", default=None, help=help_, choices=(), plain=plain)


def _literal(value: Any) -> str:
    """Return a value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _option(node: ast.AnnAssign, comments: Mapping[int, str]) -> Option | None:
    """Return the option; None without a plain default, which a form cannot show."""
    try:
        default = ast.literal_eval(node.value) if node.value is not None else None
    except ValueError:
        return None
    name, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    words = " ".join(comments[line] for line in lines if line in comments)
    if name in POLICIES:
        folder = POLICIES[name]
        return Option(name, "choice", default, words, tuple(source.available(folder)), folder)
    match node.annotation:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            each = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            names = tuple(str(ast.literal_eval(one)) for one in each)
            return Option(name, "choice", default, words, names)
    kind = _KINDS.get(annotation, "text")
    return Option(name, kind, default, words, plain=annotation == "str")


def _comments(code: str) -> dict[int, str]:
    """Return the comments by line number."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def shown(value: Any) -> Any:
    """Return a value as a form field shows it: a list of shares as "0.7, 0.3"."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value


def read(kind: str, text: str) -> Any:
    """Return the value of a text of that kind; what cannot be parsed stays text, refused later."""
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            return text
    if kind != "text":
        return text
    try:
        return parse(f"[{text}]" if "," in text and "[" not in text else text, OF_A_VISITOR)
    except SpecError:
        return text
