"""Fields and options that have no effect beside others are named to the user."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.experiment.no_effect import without_effect
from workbench.experiment.traits import traits_of
from workbench.runs.run import start
from workbench.user_code import source

RANKS = {"sequential": 1, "ape_x": 3, "gorila": 4}
VALUES: dict[str, Any] = {
    "dssp_mode": "paper",
    "stale_gradients": "scale",
    "when_lagging": "wait",
    "priority_exponent": 0.9,
    "importance_exponent": 0.9,
    "restored_from": "checkpoint",
}  # that are not the default; of the others, one more than that
CASES = [
    (strategy, option, other, beside)
    for strategy in source.available("strategies")
    for option, other, idle in traits_of(strategy).idle
    for beside in idle
]


def experiment(strategy: str, options: dict[str, Any]) -> wb.Experiment:
    plays = strategy in RANKS
    if options.get("lockstep") and strategy == "gorila":
        options = {**options, "outlier_above": 0.0}
    if "stale_gradients" in options:
        options = {"consistency": "asp", **options}
    recovery = options.get("recovery")  # a field of the experiment, the others are options
    return wb.Experiment(
        strategy=strategy,
        task="catch" if plays else "lenet_digits",
        ranks=RANKS.get(strategy, 4),
        options={name: value for name, value in options.items() if name != "recovery"},
        recovery=recovery or "abort",
        checkpoint=wb.Checkpoint(folder="not written") if recovery else None,
    )


@pytest.mark.parametrize(("strategy", "option", "other", "beside"), CASES)
def test_an_option_without_effect_is_named_and_as_left_out_it_is_not(
    strategy: str, option: str, other: str, beside: Any
) -> None:
    config = source.load("strategies", strategy, "Config")
    default = next(one.default for one in fields(config) if one.name == option)
    fine = experiment(strategy, {other: beside, option: default})
    assert list(without_effect(fine)) == []
    value = VALUES[option] if option in VALUES else default + 1
    (sentence,) = without_effect(fine.replace(options={**fine.options, option: value}))
    assert sentence == (f"options.{option} = {value!r} has no effect beside {other} = {beside!r}")


@pytest.mark.parametrize(("name", "remedy"), [("grace", "minimum"), ("quorum_timeout", "quorum")])
def test_a_wait_that_never_happens_is_named(name: str, remedy: str) -> None:
    (sentence,) = without_effect(wb.Experiment(**{name: "7 s"}))
    assert sentence.startswith(f"{name} = '7 s' has no effect") and remedy in sentence
    default = getattr(wb.Experiment(), name)
    assert list(without_effect(wb.Experiment(**{name: default}))) == []
    fits: dict[str, Any] = {"recovery": "quorum", "ranks": (2, 4)}
    assert list(without_effect(wb.Experiment(**{name: "7 s"}, **fits))) == []


@pytest.mark.parametrize("given", [{"all_reduce": "tree"}, {"chunk_bytes": 64}])
def test_what_gloo_does_in_a_way_of_its_own_is_named(given: dict[str, Any]) -> None:
    ours = wb.Experiment(**given)
    assert list(without_effect(ours)) == []
    (sentence,) = without_effect(ours.replace(backend="gloo"))
    assert sentence.startswith(*given) and "backend='gloo'" in sentence


@pytest.mark.parametrize("of", [{"latency": "5 ms"}, {"links": {(0, 1): wb.Link(latency="5 ms")}}])
def test_gloo_is_not_asked_to_emulate_links(of: dict[str, Any]) -> None:
    ours = wb.Experiment(network=wb.Network(**of))
    with pytest.raises(wb.SpecError, match=r"network.*backend='gloo'.*take backend='workbench'"):
        ours.replace(backend="gloo")


@pytest.mark.parametrize("begin", [wb.run, start])
def test_the_user_is_warned_at_the_line_that_runs(begin: Callable[[wb.Experiment], wb.Run]) -> None:
    with pytest.warns(UserWarning, match="grace = '7 s' has no effect") as caught:
        begin(wb.Experiment(iterations=2, ranks=1, strategy="sequential", grace="7 s")).wait(60)
    (warning,) = caught
    assert Path(warning.filename) == Path(__file__)


def test_a_warning_from_a_thread_of_ours_is_at_the_line_that_had_it_started() -> None:
    exp = wb.Experiment(iterations=2, ranks=1, strategy="sequential", grace="7 s")
    with pytest.warns(UserWarning, match="grace = '7 s' has no effect") as caught:
        wb.compare({"one": exp}).wait(timeout=90)
    assert {Path(one.filename) for one in caught} == {Path(__file__)}


def test_a_warning_from_a_thread_of_the_user_s_is_at_the_function_that_it_calls() -> None:
    exp = wb.Experiment(iterations=2, ranks=1, strategy="sequential", grace="7 s")
    warned = pytest.warns(UserWarning, match="grace = '7 s' has no effect")
    with warned as caught, ThreadPoolExecutor() as pool:
        pool.submit(start, exp).result().wait(60)
    (warning,) = caught
    assert warning.filename == start.__code__.co_filename
