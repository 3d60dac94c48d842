"""Fields and options that have no effect beside others.

The user who runs such an experiment is told so. It is not refused: a comparison varies one option
and leaves the rest as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from workbench.experiment.fields import Fields
from workbench.experiment.traits import hook, traits_of
from workbench.user_code import source


def without_effect(exp: Fields) -> Iterator[str]:
    """Yield a sentence for each field and option that differs from its default, to no effect."""
    yield from _options(exp)
    for name, value, why in (*_of_backend(exp), *_of_waits(exp)):
        if value != type(exp).model_fields[name].default:
            yield f"{name} = {value!r} {why}"


def _options(exp: Fields) -> Iterator[str]:
    rules = traits_of(exp.strategy).idle
    if not rules or not exp.options or (config := hook(exp.strategy, "Config")) is None:
        return
    defaults = {one.name: one.default for one in fields(config)}
    given = {"recovery": exp.recovery, **defaults, **exp.options}
    for option, other, idle in rules:
        value, beside = given[option], given[other]
        if value != defaults[option] and beside in idle:
            yield f"options.{option} = {value!r} has no effect beside {other} = {beside!r}"


def _of_backend(exp: Fields) -> Iterator[tuple[str, object, str]]:
    """Yield what our backend alone goes by, where it is another one."""
    if exp.backend != "workbench":
        for name in ("all_reduce", "chunk_bytes"):
            why = f"has no effect: backend={exp.backend!r} does it in a way of its own"
            yield name, getattr(exp, name), why


def _of_waits(exp: Fields) -> Iterator[tuple[str, object, str]]:
    """Yield how long ranks are waited for, where no rank waits for so long."""
    if exp.min_ranks is None:
        yield "grace", exp.grace, "has no effect without a minimum of ranks, such as ranks=(2, 4)"
    code = source.text_of("recovery", exp.recovery)
    if source.constant(code, "LEAVES_OUT", source.shown(exp.recovery)) is not True:
        why = "has no effect without recovery='quorum'"
        yield "quorum_timeout", exp.quorum_timeout, why
