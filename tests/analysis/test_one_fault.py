"""One truth: of each recorded run with one known fault, box and headline name it and no other.

The recording machine has two cores, so "cores" may be named first, and the fault right after it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.analysis.one_fault import BALANCED, CASES, FAULTS, Case, file_of
from tests.analysis.test_page_agrees import answers_of, packed
from workbench.analysis.bottleneck import Bottleneck, find
from workbench.store.event_store import Store
from workbench.store.holds import holds_of
from workbench.views.pages.facts import facts

LONG = 0.3  # of the longest call with the fault: shorter ones may be long for another reason
HEADLINES = {"slow link": {"slow link"}, "straggler": {"late rank", "late ranks"}}
BUSY = 0.2  # of the time of such calls: on two cores now and then a rank does come late
QUIET = {"", "call before"}  # headlines that name no rank and no link
ALL_ALONG = {"jitter": "a rank is late in its turn", "few cores": "whichever rank is late"}


@cache
def recorded(name: str) -> tuple[pl.DataFrame, dict[str, str]]:
    store = Store.load(file_of(name))
    return store.scan().collect(), store.metadata


def named(result: Bottleneck | None) -> list[tuple[str, tuple[int, ...]]]:
    """Return what is named, in order: causes, and whose doing they are."""
    assert result is not None
    both = [result, *([result.also] if result.also else [])]
    ends = [one.ranks or tuple(r for r in (one.rank, one.peer) if r >= 0) for one in both]
    return [(one.cause, ranks) for one, ranks in zip(both, ends, strict=True)]


def names_it(result: Bottleneck | None, case: Case) -> None:
    """Fail unless the fault is named, and beside it the cores at most."""
    causes = named(result)
    assert (case.cause, case.ranks) in causes, result
    assert {cause for cause, _ in causes} <= {case.cause, "cores"}, result


@pytest.mark.parametrize("name", FAULTS)
def test_the_box_names_the_fault_of_a_run_and_no_other(name: str) -> None:
    case = FAULTS[name]
    if case.held:
        return names_none(name)
    events, metadata = recorded(name)
    names_it(find(events, metadata), case)
    if name not in ALL_ALONG:  # from the second iteration on that has it
        for last in range(case.begins + 2, case.experiment.iterations):
            names_it(find(events.filter(pl.col("iteration") < last + 1), metadata), case)
    if case.begins:
        before = find(events.filter(pl.col("iteration") < case.begins), metadata)
        assert (case.cause, case.ranks) not in named(before), before
    return None


def names_none(name: str) -> None:
    """Fail if anything but the cores is named."""
    events, metadata = recorded(name)
    assert {cause for cause, _ in named(find(events, metadata))} <= {"compute", "cores"}


@pytest.mark.parametrize("name", BALANCED)
def test_the_box_names_nothing_of_a_balanced_run_but_the_cores(name: str) -> None:
    names_none(name)


def test_headlines_of_long_calls_name_the_fault_and_no_other(tmp_path: Path) -> None:
    questions = []
    for name in CASES:
        events, metadata = recorded(name)
        origin = int(events["start_ns"].min())  # type: ignore[arg-type]
        holds = [[ns - origin for ns in hold] for hold in holds_of(metadata, 0)]
        questions.append({"run": facts(metadata) | {"holds": holds}, **packed(events, origin)})
    answers = answers_of("call_truth.mjs", questions, tmp_path)
    judged = 0
    for (name, case), calls in zip(CASES.items(), answers, strict=True):
        if name in FAULTS and name not in ALL_ALONG and calls:
            judged += 1
            headlines_fit(case, calls)
    assert judged >= 8


def headlines_fit(case: Case, calls: list[dict[str, Any]]) -> None:
    """Fail unless long calls name the fault, if one of a call, and no rank otherwise."""
    first = max(1, case.begins)  # in the first iteration connections are made
    later = [call for call in calls if call["iteration"] >= first]
    longest = max(call["lasted"] for call in later)
    long = [call for call in later if call["lasted"] >= LONG * longest]
    if case.held:
        assert [call["said"][1].startswith("You held the ranks") for call in long] == [True]
        return
    if case.cause not in HEADLINES:
        if case.cause != "data":  # its time lies before the calls
            wrong = [call for call in long if call["cause"] not in QUIET]
            lasted = sum(call["lasted"] for call in long)
            assert sum(call["lasted"] for call in wrong) <= BUSY * lasted, wrong
        return
    assert any(call["ranks"] == [*case.ranks] for call in long), long
    for call in long:
        assert call["cause"] in HEADLINES[case.cause], call
        assert {*call["ranks"]} <= {*case.ranks}, call
    for call in calls:
        if call["iteration"] < case.begins:
            assert call["ranks"] != [*case.ranks] or call["lasted"] < LONG * longest, call
