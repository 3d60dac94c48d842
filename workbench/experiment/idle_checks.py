"""Fields and options that have no effect beside others: refused, unless they are as left out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from workbench.common.errors import SpecError
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
# Of each strategy: an option, another one, and the values of that beside which the first is idle.
IDLE = {
    "parameter_server": (
        ("staleness", "consistency", ("bsp", "asp")),
        ("staleness_max", "consistency", ("bsp", "asp", "ssp")),
        ("dssp_mode", "consistency", ("bsp", "asp", "ssp")),
        ("stale_gradients", "consistency", ("bsp",)),
        ("drop_above", "stale_gradients", ("keep", "scale")),
    ),
    "ddp": (
        ("powersgd_rank", "compression", ("none", "fp16", "bf16")),
        ("powersgd_start", "compression", ("none", "fp16", "bf16")),
    ),
    "fsdp": (("prefetch", "units", ("whole",)),),
    "sequential": _PLAYS,
    "gorila": (*_PLAYS, *_PLAYS_APART),
    "ape_x": _PLAYS_APART,
}


def check_idle_options(strategy: str, config: Any) -> None:
    """Check the options of a strategy, given as its ``Config``. Raises SpecError."""
    defaults = {one.name: one.default for one in fields(config)}
    for option, other, idle in IDLE.get(strategy, ()):
        value, beside = getattr(config, option), getattr(config, other)
        if value != defaults[option] and beside in idle:
            why = f"has no effect beside {other} = {beside!r}: leave it at {defaults[option]!r}"
            raise SpecError.at(f"options.{option}", f"{why}, or take another {other}", value)


def check_backend_fields(exp: Fields) -> None:
    """Check that what our backend alone does is not asked of another one."""
    if exp.backend == "workbench":
        return
    for name in ("network", "all_reduce", "chunk_bytes"):
        value, field = getattr(exp, name), type(exp).model_fields[name]
        if value != field.default:
            what = "emulates no links" if name == "network" else "does it in a way of its own"
            why = f"backend={exp.backend!r} {what}: leave it out, or take backend='workbench'"
            raise SpecError.at(name, why, None if name == "network" else value)


def check_idle_fields(exp: Fields) -> None:
    """Check that how long ranks are waited for is given where somebody waits for so long."""
    code = source.text_of("recovery", exp.recovery)
    leaves_out = "LEAVES_OUT" in source.names_defined(code, source.shown(exp.recovery))
    for name, waits, remedy in (
        ("grace", exp.min_ranks is not None, "a minimum, such as ranks=(2, 4)"),
        ("quorum_timeout", leaves_out, "recovery='quorum'"),
    ):
        if not waits and getattr(exp, name) != type(exp).model_fields[name].default:
            why = f"has no effect here: leave it out, or take {remedy}"
            raise SpecError.at(name, why, getattr(exp, name))
