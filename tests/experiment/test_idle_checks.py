"""Options that have no effect beside others are refused; as left out, they say nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import workbench as wb
from workbench.experiment.idle_checks import IDLE
from workbench.user_code import source

RANKS = {"sequential": 1, "ape_x": 3, "gorila": 4}
VALUES: dict[str, Any] = {
    "dssp_mode": "paper",
    "stale_gradients": "scale",
    "when_lagging": "wait",
    "priority_exponent": 0.9,
    "importance_exponent": 0.9,
}  # that are not the default; of the others, one more than that
CASES = [
    (strategy, option, other, beside)
    for strategy, rules in IDLE.items()
    for option, other, idle in rules
    for beside in idle
]


def experiment(strategy: str, options: dict[str, Any]) -> wb.Experiment:
    plays = strategy in RANKS
    if options.get("lockstep") and strategy == "gorila":
        options = {**options, "outlier_above": 0.0}
    if "stale_gradients" in options:
        options = {"consistency": "asp", **options}
    return wb.Experiment(
        strategy=strategy,
        task="catch" if plays else "lenet_digits",
        ranks=RANKS.get(strategy, 4),
        options=options,
    )


@pytest.mark.parametrize(("strategy", "option", "other", "beside"), CASES)
def test_an_option_without_effect_is_refused_in_python_and_in_yaml(
    strategy: str, option: str, other: str, beside: Any
) -> None:
    config = source.load("strategies", strategy, "Config")
    default = next(one.default for one in fields(config) if one.name == option)
    fine = experiment(strategy, {other: beside, option: default})
    idle = {**fine.options, option: VALUES[option] if option in VALUES else default + 1}
    says = rf"options\.{option} = .*: has no effect beside {other} = {beside!r}"
    with pytest.raises(wb.SpecError, match=says):
        fine.replace(options=idle)
    text = fine.to_yaml().partition("options:")[0] + f"options: {idle}".replace("None", "null")
    with pytest.raises(wb.SpecError, match=says):
        wb.Experiment.from_yaml(text.replace("True", "true"))


@pytest.mark.parametrize(("name", "remedy"), [("grace", "minimum"), ("quorum_timeout", "quorum")])
def test_a_wait_that_nobody_does_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(wb.SpecError, match=rf"{name} = '7 s': has no effect here.*{remedy}"):
        wb.Experiment(**{name: "7 s"})
    default = getattr(wb.Experiment(), name)
    assert getattr(wb.Experiment(**{name: default}), name) == default
    fits: dict[str, Any] = {"recovery": "quorum", "ranks": (2, 4)}
    assert getattr(wb.Experiment(**{name: "7 s"}, **fits), name) == "7 s"


@pytest.mark.parametrize(
    "fields",
    [
        {"network": wb.Network(latency="5 ms")},
        {"network": wb.Network(links={(0, 1): wb.Link(latency="5 ms")})},
        {"all_reduce": "tree"},
        {"chunk_bytes": 64},
    ],
)
def test_what_our_backend_does_is_not_asked_of_gloo(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert getattr(wb.Experiment(**fields), name) == fields[name]
    with pytest.raises(wb.SpecError, match=rf"{name}.*backend='gloo'.*take backend='workbench'"):
        wb.Experiment(**fields, backend="gloo")
    with pytest.raises(wb.SpecError, match=name):
        wb.Experiment(**fields).replace(backend="gloo")
