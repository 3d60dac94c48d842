"""Every public function and method, given values of the wrong type: each is refused with a
SpecError that says which function was called, which argument, what it got and what fits.

What is public and not in FACE (public_face.py) fails, so a new name comes with its kinds.
"""

from __future__ import annotations

import gc
import inspect
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.public_face import (
    BESIDE,
    CALLS,
    CLASSES,
    FACE,
    MADE_BY,
    NOUN,
    RECORDS,
    STEERING,
    arguments,
)
from tests.wrong_values import WRONG, kind
from workbench.common.errors import short


def test_everything_public_is_here() -> None:
    records = {f"{name}.{method}" for name in RECORDS for method in ("model_validate",)}
    expected = {name: arguments(one) for name, one in CALLS.items() if name not in records}
    expected["Experiment.model_validate"] = ["obj"]
    assert expected == {name: [*named] for name, named in FACE.items()}
    known = {*FACE, *RECORDS, *MADE_BY}
    errors = {name for name, one in CLASSES.items() if issubclass(one, Exception)}
    assert {*wb.__all__} <= known | errors


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Of processor time: what goes on for longer would go on forever."""

    def over(*_: object) -> None:
        raise AssertionError(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def children() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


def complaint(call: Callable[[], Any]) -> str:
    """Return what the call says of its arguments; anything else begins with "!"."""
    try:
        with limited(5.0):
            result = call()
    except wb.SpecError as error:
        return str(error)
    except Exception as error:
        return f"! {type(error).__name__}: {error}"
    return f"! returned {result!r:.80}"


@pytest.mark.parametrize("name", [name for name in FACE if FACE[name]])
def test_wrong_values_are_refused_in_words(name: str) -> None:
    function, started, bad = CALLS[name], children(), []
    several = {
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.VAR_POSITIONAL
    }
    for argument, of_kind in FACE[name].items():
        for words in WRONG.keys() - kind(of_kind):
            value, beside = WRONG[words](), dict(BESIDE.get(name, {}))
            beside.pop(argument, None)
            if argument in several:
                first = [
                    beside.pop(one)
                    for one in [*FACE[name]][: [*FACE[name]].index(argument)]
                    if one in beside
                ]
                answer = complaint(lambda: function(*first, value, **beside))  # noqa: B023
            else:
                answer = complaint(lambda: function(**{argument: value}, **beside))  # noqa: B023
            named = {
                argument,
                argument.removesuffix("s"),
                NOUN.get(argument, argument),
                short(WRONG[words]()),
            }
            names_it = any(one in answer for one in named)
            if answer.startswith("!") or "pydantic" in answer or not names_it:
                bad.append(f"{argument}={words}: {answer}")
    assert not bad, "\n".join(bad)
    assert children() == started


@pytest.mark.parametrize("name", RECORDS)
def test_wrong_values_of_fields_are_refused_in_words(name: str) -> None:
    """Or taken, where they are right: then the record is one that can be written and read."""
    record, bad = getattr(wb, name), []
    least = {
        "Kill": {"rank": 0, "at_iteration": 0},
        "Slow": {"rank": 0, "factor": 2},
        "Freeze": {"rank": 0, "at_iteration": 0, "seconds": 1},
        "Jitter": {"probability": 0.5, "factor": 2},
        "Corrupt": {"rank": 0, "at_iteration": 0},
        "Cut": {"source": 0, "target": 1, "at_iteration": 0},
        "NetworkPartition": {"ranks": (0,), "at_iteration": 0},
        "Preempt": {"rank": 0, "at_iteration": 0},
        "FailToStart": {"rank": 0},
        "Join": {"rank": 0, "at_iteration": 0},
        "SourceDown": {"at_iteration": 1, "seconds": 1},
        "When": {"rank": 0, "step": 0},
        "Pads": dict.fromkeys(wb.Pads.model_fields, "1 ms"),
    }.get(name, {})
    for field in record.model_fields:
        for words, make in WRONG.items():
            answer = complaint(lambda: record(**{**least, field: make()}))  # noqa: B023
            passes = answer.startswith("! returned") or f"{name}." in answer
            if not passes or "pydantic" in answer:
                bad.append(f"{field}={words}: {answer}")
    assert not bad, "\n".join(bad)


def test_fields_are_given_by_name_and_do_not_change() -> None:
    with pytest.raises(wb.SpecError, match=r"Experiment\('ddp'\).*by name.*strategy='ddp'"):
        wb.Experiment("ddp")
    exp = wb.Experiment(ranks=2)
    with pytest.raises(wb.SpecError, match=r"Experiment is frozen.*exp.replace\(ranks=3\)"):
        exp.ranks = 3
    with pytest.raises(wb.SpecError, match=r"no field 'rank' \(did you mean 'ranks'"):
        exp.rank = 3
    with pytest.raises(wb.SpecError, match=r"Experiment is frozen.*seed"):
        del exp.seed
    with pytest.raises(wb.SpecError, match=r"wb.Network\(latency='1 ms'\)"):
        exp.network.latency = "1 ms"
    assert exp == wb.Experiment(ranks=2)


def test_what_an_experiment_is_made_from_is_said() -> None:
    for value in ({"ranks": 2}, "spec.yaml", Path("spec.yaml")):
        with pytest.raises(wb.SpecError, match=r"wb.run: exp = .*\(\*\*fields\).*from_yaml"):
            wb.run(value)  # type: ignore[arg-type]
    with pytest.raises(wb.SpecError, match="not an experiment's JSON"):
        wb.Experiment.from_json("{")


def test_times_are_numbers_of_seconds_or_have_a_unit() -> None:
    """As elsewhere: "2 min". What is longer than Python's locks wait is as long as they do."""
    assert wb.check("barrier", "dissemination", ranks=1, timeout="2 min", progress=False).ok
    with pytest.raises(wb.SpecError, match=r"timeout = '5': must be seconds, such as 2.5 or '5 s'"):
        wb.check("barrier", "dissemination", ranks=1, timeout="5")
    crossing = wb.crossover("ring", ranks=2, sizes=(64, 256), measure=False)
    for timeout in (math.inf, 10**18, "1 min", 0):
        assert crossing.wait(timeout) is crossing


def test_names_of_views_and_figures_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is left that complains once it is forgotten."""
    left: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: left.append(report.exc_value))
    planned = wb.plan("all_reduce", "ring", ranks=2, nbytes=64)
    with pytest.raises(wb.SpecError, match="no scene 'nope'; there is overview"):
        planned.view("nope")
    with pytest.raises(wb.SpecError, match="no chart 'nope'; there are loss"):
        planned.figure("nope")
    with pytest.raises(wb.SpecError, match="no chart 'nope'; there are loss"):
        planned.charts("nope")
    gc.collect()
    assert left == []


def test_a_live_run_is_not_touched_by_what_does_not_fit() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=20, pad_compute="5 ms"))
    for method, named in STEERING.items():
        for argument, of_kind in named.items():
            beside = BESIDE.get(f"Run.{method}", {})
            for words in WRONG.keys() - kind(of_kind) - {"10**18"}:
                with pytest.raises(wb.SpecError):
                    getattr(run, method)(**{**beside, argument: WRONG[words]()})
    for rank in (2, 10**18):
        with pytest.raises(wb.SpecError, match="rank"):
            run.kill(rank)
    assert run.wait(60).ok
    assert "fault" not in {*run.events["kind"]}
    with pytest.raises(wb.SpecError, match=r"Run.wait: timeout = nan"):
        run.wait(math.nan)
