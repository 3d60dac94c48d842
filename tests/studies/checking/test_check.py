"""wb.check on real ranks: what is right is found right; each fault is named with rank and line."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

import workbench as wb
from tests.live import crowding
from tests.pairwise import first
from tests.pictures import in_image
from tests.studies.checking import algorithms
from workbench.common.errors import SpecError
from workbench.formulas import OPERATIONS
from workbench.studies.checking.check import PARAMETERS
from workbench.studies.checking.report import Report
from workbench.theory import cost_model
from workbench.user_code.source import available
from workbench.views.pages.facts import facts

FEW: dict[str, Any] = {"sizes": (1, 1000), "dtypes": ("float32", "int64")}


def line_of(function: Callable[..., Any], text: str) -> str:
    """ "algorithms.py line 12: comm.send(...)", of the line that contains ``text``."""
    lines, first = inspect.getsourcelines(function)
    (at,) = [i for i, line in enumerate(lines) if text in line]
    return f"algorithms.py line {first + at}: {lines[at].strip()}"


def shipped() -> list[tuple[str, str]]:
    """Every algorithm of the folder: a new file is checked with no edit here."""
    pairs = []
    for operation in PARAMETERS:
        others = [other for other in PARAMETERS if other.startswith(f"{operation}_")]
        for name in available("collectives", f"{operation}_"):
            if not any(f"{operation}_{name}".startswith(f"{other}_") for other in others):
                pairs.append((operation, name))
    return pairs


def judge_shipped(operation: str, name: str, ranks: tuple[int, ...], **options: Any) -> None:
    report = wb.check(operation, name, ranks=ranks, **options)
    assert report.ok and report.correct and report.identical and not report.deadlock, str(report)
    if name in OPERATIONS[operation]:
        expected = {
            n: cost_model.steps(name, n, operation=operation) for n in report.steps if n > 1
        }
        assert {n: steps for n, steps in report.steps.items() if n > 1} == expected, str(report)


@pytest.mark.parametrize(("operation", "name"), first(3, shipped()))
def test_what_is_shipped_is_right_in_rendezvous_too_and_takes_its_steps(
    operation: str, name: str
) -> None:
    judge_shipped(operation, name, (1, 3, 4), **FEW)


@pytest.mark.full
@pytest.mark.parametrize(("operation", "name"), shipped())
def test_all_of_it_with_every_size_and_number_of_ranks(operation: str, name: str) -> None:
    judge_shipped(operation, name, tuple(range(1, 9)))


@pytest.mark.full
def test_a_plain_ring_of_a_users_own_is_correct_and_within_the_bound() -> None:
    report = wb.check("all_reduce", algorithms.ring, ranks=(1, 2, 3, 4, 5))
    assert report.ok and report.correct and report.identical and report.within_bound, str(report)
    assert report.deadlock is None
    assert report.steps == {1: 0, 2: 2, 3: 4, 4: 6, 5: 8}
    assert all(report.sent[n] == pytest.approx(2 * (n - 1) / n, abs=0.01) for n in report.sent)
    assert report.headline == "ring: correct and within the bound"
    assert {case.case.mode for case in report.cases} == {"eager", "rendezvous"}
    sends = report.run.events.filter(report.run.events["kind"] == "send")
    assert set(sends["step"]) == set(range(8)) and set(sends["chunk"]) == set(range(5))


def test_right_sums_with_too_many_bytes_are_said_in_the_first_line() -> None:
    report = wb.check("all_reduce", algorithms.all_peers, ranks=(2, 4), **FEW)
    assert report.ok and report.correct and not report.within_bound
    first = str(report).splitlines()[0]
    assert "correct, but not within the bound" in first and "2.0 times" in first
    assert not report.identical and "replicas differ" in first, "each rank adds in its own order"


def test_the_bytes_of_an_uneven_all_to_all_are_judged() -> None:
    options: dict[str, Any] = {"ranks": 3, "sizes": (1, 1000), "dtypes": "int64"}
    right = wb.check("all_to_all", "pairwise", **options)
    uneven = [case for case in right.cases if case.case.uneven]
    assert right.ok and right.within_bound and len(uneven) == 2
    assert all(max(case.sent) == case.bound for case in uneven), "each part goes once"
    assert right.sent == right.bound and right.sent[3] < 1
    twice = wb.check("all_to_all", algorithms.everything_twice, **options)
    assert twice.ok and not twice.within_bound and "sends 2.0 times" in twice.headline
    assert not any(case.within for case in twice.cases if case.case.uneven)


def test_one_that_is_told_how_to_combine_is_asked_for_more_than_sums() -> None:
    report = wb.check("all_reduce", algorithms.with_reduce, ranks=3, **FEW)
    assert report.ok and report.identical, str(report)
    assert {case.case.reduce for case in report.cases} == {"SUM", "MAX"}


# -- deadlocks --


def test_a_deadlock_that_hides_in_slots_is_found_in_rendezvous() -> None:
    report = wb.check("all_reduce", algorithms.whole_ring, ranks=(2, 4), **FEW)
    assert not report.ok and report.correct and not report.within_bound
    deadlock = report.deadlock
    assert deadlock is not None and deadlock.cycle == (0, 1) and deadlock.seconds < crowding()
    where = line_of(algorithms.whole_ring, "comm.send")
    assert [one.place.words for one in deadlock.stands] == [where, where]
    assert "only where a send returns only when it is received" in str(report)
    four = [case.deadlock for case in report.cases if case.deadlock and case.case.ranks == 4]
    assert [one.cycle for one in four] == [(0, 1, 2, 3)]


def test_it_is_a_deadlock_in_slots_too_where_a_message_is_larger_than_a_mailbox() -> None:
    report = wb.check("all_reduce", algorithms.whole_ring, ranks=3, sizes=(20_000,), dtypes="int64")
    eager = [case for case in report.cases if case.case.mode == "eager"]
    assert [case.how for case in eager] == ["deadlock"]
    assert "whose mailbox is full" in str(report)


def test_which_rank_waits_for_which_is_said_and_drawn() -> None:
    report = wb.check("all_reduce", algorithms.receives_first, ranks=4, **FEW)
    assert report.headline.startswith("receives_first: DEADLOCK with 4 ranks")
    assert "0 → 3 → 2 → 1 → 0" in report.headline
    where = line_of(algorithms.receives_first, "comm.recv")
    assert f"rank 0 waits for a message from rank 3 at {where}" in str(report)
    page = report._repr_html_()
    assert "<svg" not in page, "inline, it would be left out of a notebook that is not trusted"
    picture = in_image(page)
    assert picture.count("<polygon") == 4 and "Rank 2 waits for a message from rank 1" in picture
    assert f"rank 2 waits for a message from rank 1 at <code>{where}</code>" in page
    assert "prefers-color-scheme:dark" in picture
    waits = report.run.events.filter(report.run.events["kind"] == "wait")
    assert set(waits["rank"]) == {0, 1, 2, 3}, "the view shows which waited"
    header = facts(report.run.store.metadata)  # nothing has left: it has this alone to draw
    assert [(one["rank"], one["peer"]) for one in header["waiting"]] == [
        (0, 3),
        (1, 0),
        (2, 1),
        (3, 2),
    ]
    assert header["ranks"] == 4 and where in header["waiting"][0]["words"]


def test_a_message_that_will_never_be_sent_is_found_as_soon() -> None:
    report = wb.check("all_reduce", algorithms.waits_for_one_that_returned, ranks=3, **FEW)
    assert report.deadlock is not None and report.deadlock.cycle == ()
    assert report.deadlock.seconds < crowding()
    assert "waits for rank 1, which returned already" in str(report)


def test_waiting_for_anyone_is_a_deadlock_once_no_other_is_left() -> None:
    report = wb.check("all_reduce", algorithms.waits_for_anyone, ranks=3, **FEW)
    assert report.deadlock is not None and len(report.deadlock.stands) == 3
    assert "from any rank" in str(report)


# -- what is wrong --


def test_a_part_that_is_missing_is_named_with_its_chunk() -> None:
    report = wb.check("all_reduce", algorithms.forgets_the_last, ranks=4, **FEW)
    assert not report.ok and not report.correct and report.identical
    assert "elements 0 to 999 of 1,000 (chunks 0 to 3 of 4) lack the part of rank 3" in str(report)


def test_digits_that_are_lost_are_not_a_missing_part() -> None:
    report = wb.check("all_reduce", algorithms.in_float32, ranks=(2, 4), **FEW)
    assert not report.correct
    words = [one.words for one in report.cases if not one.ok]
    assert len(words) == 8  # 2 numbers of ranks, 2 sizes, 2 modes; of int64
    assert all("all contributions are in, but the last digits are lost" in one for one in words), (
        words
    )
    assert "element 0 is 2147483648, expected 2147483649" in report.headline
    lacking = wb.check("all_reduce", algorithms.forgets_the_last, ranks=4, **FEW)
    assert "digits" not in str(lacking), lacking


def test_a_part_in_a_wrong_place_is_told_from_a_wrong_value() -> None:
    report = wb.check("all_gather", algorithms.not_turned, ranks=(2, 3), **FEW)
    assert not report.correct
    # The smallest case that fails comes first, whatever tells most.
    first = "with 2 ranks, 1 float32: rank 1's element 0 of 2 holds rank 1's part where rank 0's"
    assert first in report.headline, report.headline
    words = [one.words for one in report.cases if not one.ok]
    assert all("part where rank" in one for one in words), words
    messages = [
        one.words for one in report.cases if one.case.elements == 1000 and "int" in one.case.dtype
    ]
    assert "elements 0 to 999 of 2,000 (chunk 0 of 2) hold rank 1's part where" in messages[0], (
        messages
    )


def test_a_part_that_is_in_twice_is_named_with_its_chunk_and_drawn() -> None:
    report = wb.check("all_reduce", algorithms.doubles, ranks=4, **FEW)
    assert not report.correct
    assert "(chunk 2 of 4) hold rank 0's part 2 times" in report.headline, report.headline
    worst = report.worst
    assert worst is not None and {len(row) for row in worst.parts} == {4}
    assert worst.parts[0][2] != (1, 1, 1, 1) and worst.parts[0][0] == (1, 1, 1, 1)
    assert "Contributions in each chunk" in in_image(report._repr_html_())


def test_a_message_that_was_not_received_is_named_with_its_line() -> None:
    report = wb.check("all_reduce", algorithms.sends_too_much, ranks=3, **FEW)
    where = line_of(algorithms.sends_too_much, "comm.send")
    assert not report.ok and report.correct and report.deadlock is None
    assert f"rank 2 never received what rank 0 sent it at {where}" in report.headline
    assert [case.how for case in report.cases if case.broke] == ["unreceived"] * 2


@pytest.mark.parametrize(
    ("function", "line", "words"),
    first(
        4,
        [
            (algorithms.wrong_shape, "total[:-1]", "rank 1 returned float32 of shape (0,)"),
            (algorithms.on_another_device, "meta", "returned float32 of shape (1,) on meta"),
            (algorithms.writes_behind, "as_strided", "rank 1 wrote behind the end of x"),
            (algorithms.loops, "while", "not done in time: rank 0 is still running"),
            (algorithms.raises, "raise ValueError", "rank 1 raised ValueError"),
            (
                algorithms.no_such_rank,
                "comm.send",
                "cannot send to rank 2: the group has ranks 0 to 1",
            ),
            (algorithms.to_itself, "comm.send", "cannot send to itself"),
            (algorithms.sends_numbers, "comm.send", "a list cannot travel"),
            (algorithms.dies, "", "rank 1 exited with code 3"),
        ],
    ),
)
def test_each_fault_is_named_with_rank_and_line_and_the_pool_survives(
    function: Callable[..., Any], line: str, words: str
) -> None:
    report = wb.check("all_reduce", function, ranks=2, timeout=1, **FEW)
    assert not report.ok and not report.correct and not report.deadlock
    first = report.headline
    assert words in first
    if line == "while":  # either line of the loop
        assert "algorithms.py line" in first
    elif line:
        assert line_of(function, line) in first
    assert wb.check("all_reduce", "ring", ranks=2, sizes=(8,), dtypes="int64").ok


def test_what_is_printed_is_kept_in_part_and_counted() -> None:
    report = wb.check("all_reduce", algorithms.prints, ranks=2, sizes=(1,), dtypes="int64")
    assert report.ok
    text = str(report)
    assert len(text) < 4000 and "[rank 0] noise noise" in text
    assert f"{64 * (6 * 2**20 + 1):,} characters in all" in text


def test_nothing_is_left_of_checks_that_broke() -> None:
    wb.check("all_reduce", algorithms.receives_first, ranks=3, **FEW)
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for function in (algorithms.receives_first, algorithms.raises, algorithms.dies):
        wb.check("all_reduce", function, ranks=3, sizes=(8,), dtypes="int64")
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


# -- what is asked --


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("all_reduc", "ring"), {}, "did you mean 'all_reduce'"),
        (("all_reduce", "rign"), {}, "did you mean 'ring'"),
        (("broadcast", algorithms.ring), {}, "(comm, x, root)"),
        (("all_reduce", lambda comm, x: x), {}, "lambda"),
        (("all_reduce", "ring"), {"ranks": 0}, "ranks"),
        (("all_reduce", "ring"), {"ranks": ()}, "ranks"),
        (("all_reduce", "ring"), {"sizes": (-1,)}, "sizes"),
        (("all_reduce", "ring"), {"dtypes": "float23"}, "did you mean 'float32'"),
        (("all_reduce", "ring"), {"timeout": 0}, "timeout"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_starts(
    arguments: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        wb.check(*arguments, **options)
    assert words in str(caught.value)


def test_what_was_checked_trains() -> None:
    shared: dict[str, Any] = {
        "strategy": "data_parallel",
        "task": "lenet_digits",
        "ranks": 3,
        "iterations": 4,
        "batch_size": 48,
    }
    theirs = wb.run(wb.Experiment(**shared, all_reduce=algorithms.ring)).wait(60)
    ours = wb.run(wb.Experiment(**shared, all_reduce="ring")).wait(60)
    assert theirs.losses == pytest.approx(ours.losses, abs=1e-5)
    assert len(set(theirs.digests.values())) == 1


def test_the_stage_of_a_report_is_a_page(tmp_path: Any) -> None:
    report: Report = wb.check("all_reduce", algorithms.receives_first, ranks=3, **FEW)
    report.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize(("name", "words"), [("ring", "right."), ("receives_first", "0 → ")])
def test_the_stage_of_a_report_opens_where_its_chunks_are_and_tells_of_no_loss(
    name: str, words: str
) -> None:
    from workbench.views.stills import still

    case = wb.check("all_reduce", getattr(algorithms, name), ranks=3, **FEW).run
    selection = still.select(case.store)
    assert words in selection.sentence and not selection.trains
    assert case.store.metadata["scene"] == "collectives"
    assert case.store.metadata["title"].startswith(f"{name} with 3 ranks")
