"""Fields and options that have no effect beside others.

Who runs such an experiment is told so. It is not refused: a comparison varies one option and leaves
the rest as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from workbench.experiment.fields import Fields
from workbench.user_code import source

_PLAYS = (
    ("priority_exponent", "replay", ("uniform",)),
    ("importance_exponent", "replay", ("uniform",)),
)
_PLAYS_APART = (
    ("when_lagging", "max_policy_lag", (None,)),
    ("ask_ahead", "lockstep", (True,)),
)
_STAY = ("abort", "restart")  # policies that take nothing from what survivors have in memory
_BUDDIES = ("buddy_every", "recovery", _STAY)
_KEYS = ("restored_from", "recovery", _STAY)
# Of each strategy: an option, another one (or a field of the experiment), and the values of that
# beside which the first is idle.
IDLE = {
    "parameter_server": (
        ("staleness", "consistency", ("bsp", "asp")),
        ("staleness_max", "consistency", ("bsp", "asp", "ssp")),
        ("dssp_mode", "consistency", ("bsp", "asp", "ssp")),
        ("stale_gradients", "consistency", ("bsp",)),
        ("drop_above", "stale_gradients", ("keep", "scale")),
        _KEYS,
    ),
    "ddp": (
        ("powersgd_rank", "compression", ("none", "fp16", "bf16")),
        ("powersgd_start", "compression", ("none", "fp16", "bf16")),
    ),
    "fsdp": (("prefetch", "units", ("whole",)), _BUDDIES),
    "pipeline": (_BUDDIES,),
    "tensor_parallel": (_BUDDIES,),
    "sequential": _PLAYS,
    "gorila": (*_PLAYS, *_PLAYS_APART, _KEYS),
    "ape_x": _PLAYS_APART,
}


def without_effect(exp: Fields) -> Iterator[str]:
    """Yield a sentence for each field and option that differs from its default, to no effect."""
    yield from _options(exp)
    for name, value, why in (*_of_backend(exp), *_of_waits(exp)):
        if value != type(exp).model_fields[name].default:
            yield f"{name} = {value!r} {why}"


def _options(exp: Fields) -> Iterator[str]:
    rules = IDLE.get(exp.strategy) if isinstance(exp.strategy, str) else None
    if not rules or not exp.options:
        return
    config = source.load("strategies", exp.strategy, "Config")
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
    if "LEAVES_OUT" not in source.names_defined(code, source.shown(exp.recovery)):
        why = "has no effect without recovery='quorum'"
        yield "quorum_timeout", exp.quorum_timeout, why
