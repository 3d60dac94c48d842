"""Schedules as data: every one of ours is complete and stops nowhere, a faulty one is refused where
it is faulty, with the grid drawn; what a user writes (a grid, a text, a function, a path) is the
same thing as one of ours.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.training.pipelines.checks import Deadlock
from workbench.training.pipelines.schedule import Action, Schedule, build, needs, walk
from workbench.training.pipelines.theory import makespan_s
from workbench.user_code import source

NAMES = source.available("schedules")
ONE_STAGE = ("1f1b", "gpipe", "pipedream", "zb_h1", "zb_h2")
FOLDED = ("zbv", "dualpipe_v")

SQUARE = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
CROSSED = [["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any of ours, for K = 2, 4, 8 and M = 1..32 as far as it allows."""
    name, ranks = draw(st.sampled_from(NAMES)), draw(st.sampled_from([2, 4, 8]))
    microbatches = draw(st.integers(1, 32))
    chunks = 1
    if name in FOLDED:
        chunks = 2
    elif name not in ONE_STAGE:
        chunks = draw(st.integers(2, 3))
    if name in ("interleaved_1f1b", "interleaved_zero_bubble", "looped_bfs"):
        microbatches = max(1, microbatches // ranks) * ranks
    if name == "dualpipe_v":
        microbatches = max(2 * ranks, microbatches)
    return build(name, ranks=ranks, microbatches=microbatches, stages_per_rank=chunks)


def test_there_are_the_schedules_that_we_say() -> None:
    assert (
        sorted(
            "1f1b dualpipe_v gpipe interleaved_1f1b interleaved_zero_bubble looped_bfs pipedream "
            "sequential zb_h1 zb_h2 zbv".split()
        )
        == NAMES
    )


@given(schedules())
def test_every_action_is_done_once_after_all_that_it_needs(plan: Schedule) -> None:
    """Checked without ``check``: by doing it."""
    order, reached = walk(plan.rows, plan.stages)
    assert reached == [len(row) for row in plan.rows]
    when = {place.action: n for n, place in enumerate(order)}
    assert len(when) == sum(map(len, plan.rows))
    for stage in range(plan.stages):
        for m in range(plan.microbatches):
            kinds = "".join(k for k in "FBIW" if Action(stage, k, m) in when)
            assert kinds in ("FB", "FIW")
    for action, n in when.items():
        assert all(when[one] < n for one in needs(action, plan.stages, when))


@given(schedules())
def test_what_is_printed_is_parsed(plan: Schedule) -> None:
    again = Schedule.parse(str(plan), plan.name, plan.flush)
    assert again == plan
    assert build([[str(one) for one in row] for row in plan.rows]).rows == plan.rows


@given(schedules(), st.randoms(use_true_random=False))
def test_swapped_actions_are_refused_or_still_right(plan: Schedule, chance: random.Random) -> None:
    """A grid with two actions of a row exchanged: the check says what doing it says."""
    rows = [list(row) for row in plan.rows]
    row = chance.choice(rows)
    a, b = chance.randrange(len(row)), chance.randrange(len(row))
    row[a], row[b] = row[b], row[a]
    swapped = tuple(map(tuple, rows))
    stuck = walk(swapped, plan.stages)[1] != [len(one) for one in swapped]
    if not stuck:
        assert build(rows, ranks=plan.ranks).rows == swapped
        return
    with pytest.raises(Deadlock) as refused:
        build(rows, ranks=plan.ranks)
    cycle = refused.value.cycle
    for (waiting, blocker), (following, _) in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        present = {one for each in swapped for one in each}
        assert blocker.action in needs(waiting.action, plan.stages, present)
        # on the rank that is the next to wait, and not before what that one stands at
        assert blocker.rank == following.rank and blocker.position >= following.position
        assert f"{waiting.action} waits for {blocker.action}" in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_walk_in_each_file_is_what_it_makes(name: str) -> None:
    text = importlib.import_module(f"workbench.schedules.{name}").__doc__ or ""
    for part in ("Cost", "Peak", "Walk"):
        assert f"\n{part} " in text, part
    assert re.search(r"arXiv|doi:", text), "name the paper"
    walked = text[text.index("Walk") :]
    number = {key: int(digits) for key, digits in re.findall(r"\b([KMv])=(\d+)", walked)}
    schedule = build(
        name, ranks=number["K"], microbatches=number["M"], stages_per_rank=number.get("v", 1)
    )
    lines = [line.strip() for line in walked.splitlines() if line.strip().startswith("rank ")]
    assert lines == str(schedule).splitlines()


def test_stages_live_where_their_actions_are() -> None:
    assert build("interleaved_1f1b", ranks=2, microbatches=2, stages_per_rank=3).rank_of == (
        0,
        1,
        0,
        1,
        0,
        1,
    )
    assert build("zbv", ranks=3, microbatches=6, stages_per_rank=2).rank_of == (0, 1, 2, 2, 1, 0)


def test_torchs_own_1f1b_and_interleaved_are_as_good_as_ours() -> None:
    """Made by other people: the same peaks and makespan, or worse."""
    from workbench.schedules._torch import grid

    for ranks, microbatches in ((2, 4), (4, 8), (8, 16)):
        theirs = build(grid("ScheduleInterleaved1F1B", ranks, microbatches, 2), ranks=ranks)
        ours = build("interleaved_1f1b", ranks=ranks, microbatches=microbatches, stages_per_rank=2)
        assert makespan_s(ours) <= makespan_s(theirs)
        assert all(a <= b for a, b in zip(ours.rank_peaks, theirs.rank_peaks, strict=True))


def test_without_flush_it_goes_on_over_the_iterations() -> None:
    plan = build("pipedream", ranks=4, microbatches=4, iterations=5)
    assert not plan.flush and plan.microbatches == 20
    assert plan.rows == build("1f1b", ranks=4, microbatches=20).rows
    assert build("1f1b", ranks=4, microbatches=4, iterations=5).microbatches == 4


# -- a user's own --


def mine(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[str]]:
    """GPipe that goes back in reverse."""
    there = [[f"{r}F{m}" for m in range(microbatches)] for r in range(ranks)]
    back = [[f"{r}B{m}" for m in reversed(range(microbatches))] for r in range(ranks)]
    return [a + b for a, b in zip(there, back, strict=True)]


def endless(
    ranks: int, microbatches: int, stages_per_rank: int, flush: bool = False
) -> list[list[str]]:
    return mine(ranks, microbatches, stages_per_rank)


def test_a_users_own_is_as_good_as_a_name(tmp_path: Path) -> None:
    expected = build(mine, ranks=3, microbatches=2)
    assert expected.name == "mine" and expected.flush
    assert build(source.capture(mine), ranks=3, microbatches=2) == expected
    file = tmp_path / "my_schedule.py"
    file.write_text(source.capture(mine).code)
    assert build(f"{file}:mine", ranks=3, microbatches=2) == expected
    assert build(source.capture(endless), ranks=2, microbatches=2, iterations=3).microbatches == 6
    assert wb.schedule is build and isinstance(expected, wb.Schedule)


def test_a_grid_says_by_itself_how_large_it_is() -> None:
    text = "rank 0: 0F0 0F1 .   0B0 0B1   # as people write it\nrank 1: -   1F0 1B0 1F1 1B1\n"
    plan = build(text)
    assert (plan.ranks, plan.stages, plan.microbatches) == (2, 2, 2)
    assert plan.rows == build(SQUARE).rows
    assert build([[Action(0, "F", 0), None, (0, "B", 0)]]).peaks == (1,)


def test_peaks_count_until_the_weight_gradient() -> None:
    whole = build([["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"]])
    halves = build([["0F0", "0F1", "0I0", "0F2", "0I1", "0I2", "0W0", "0W1", "0W2"]])
    assert (whole.peaks, halves.peaks) == ((2,), (3,))
    thin = build("0F0 1F0 0F1 1F1 1B0 1B1 0B0 0B1", ranks=1)
    assert (thin.peaks, thin.rank_peaks) == ((2, 2), (4,))


# -- faults --

FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "backward before its forward": (
        lambda: build([["0F0", "0B0"], ["1B0", "1F0"]]),
        r"rank 1, position 0: 1B0 waits for 1F0.*same rank does later, at position 1"
        r"(.|\n)*\[1B0\] \(1F0\)",
    ),
    "a cycle": (
        lambda: build(CROSSED),
        r"2 ranks wait for one another\n"
        r"  rank 0, position 1: 0B0 waits for 1B0, which rank 1 does at position 2, after 1F1\n"
        r"  rank 1, position 1: 1F1 waits for 0F1, which rank 0 does at position 2, after 0B0\n"
        r"(.|\n)*\[0B0\] \(0F1\)(.|\n)*\[1F1\] \(1B0\)(.|\n)*"
        r"0B0 → 1B0 → 1F1 → 0F1 → 0B0",
    ),
    "no backward": (
        lambda: build("0F0 0B0\n1F0"),
        r"rank 1, position 0: 1F0 has no backward: 1B0, or 1I0 and",
    ),
    "no forward": (lambda: build("0F0 0B0\n1B0"), r"1F0 is missing"),
    "no weight gradient": (lambda: build("0F0 0I0"), r"0I0 has no 0W0"),
    "both ways back": (lambda: build("0F0 0B0 0I0 0W0"), r"write B, or I and W"),
    "twice": (lambda: build("0F0 0F0 0B0"), r"rank 0, position 1: 0F0 is done already"),
    "on two ranks": (
        lambda: build("0F0 1B0\n1F0 0B0"),
        r"rank 1, position 0: 1F0 is on the wrong rank: stage 1 lives on rank 0",
    ),
    "no such stage": (
        lambda: build("0F0 0B0 2F0\n1F0 1B0", ranks=2, stages_per_rank=1),
        r"rank 0, position 2: 2F0 is of no stage: there are stages 0 to 1",
    ),
    "no such microbatch": (
        lambda: build(SQUARE, microbatches=1),
        r"0F1 is of no microbatch: there are microbatches 0 to 0",
    ),
    "too few": (lambda: build(SQUARE, microbatches=3), r"0F2 is missing"),
    "other ranks": (lambda: build(SQUARE, ranks=3), r"2 rows for ranks=3"),
    "no action": (lambda: build("0F0 0Q0"), r"rank 0, position 1: '0Q0' is not an action"),
    "nothing": (lambda: build([]), r"has no actions|0 rows|no actions"),
    "a number": (lambda: build(3), r"schedule = 3 is none: write a name \(1f1b"),
    "a row of no actions": (lambda: build([1, 2]), r"rank 0: 1 is not a row of actions"),
    "a name that is none": (lambda: build("1f1d", ranks=2, microbatches=2), r"did you mean '1f1b'"),
    "a function of two": (
        lambda: build(lambda a, b: [], ranks=2, microbatches=2),
        r"takes \(a, b\); it is called with \(ranks, microbatches, stages_per_rank\)",
    ),
    "no number of ranks": (lambda: build("gpipe", microbatches=2), r"for how many ranks="),
    "no microbatch": (lambda: build("gpipe", ranks=2, microbatches=0), r"microbatches = 0"),
    "uneven groups": (
        lambda: build("interleaved_1f1b", ranks=4, microbatches=6, stages_per_rank=2),
        r"microbatches = 6 must be a multiple of ranks = 4",
    ),
    "thick stages": (
        lambda: build("interleaved_1f1b", ranks=4, microbatches=8),
        r"for 1 take '1f1b'",
    ),
    "thin stages": (
        lambda: build("gpipe", ranks=4, microbatches=8, stages_per_rank=2),
        r"take 'looped_bfs'",
    ),
    "not folded": (lambda: build("zbv", ranks=4, microbatches=8), r"zbv has stages_per_rank=2"),
    "what torch refuses": (
        lambda: build("dualpipe_v", ranks=4, microbatches=4, stages_per_rank=2),
        r"at least as many microbatches as stages",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_is_refused_in_words(name: str) -> None:
    make, words = FAULTS[name]
    with pytest.raises(wb.SpecError, match=words):
        make()


def test_a_cycle_is_found_from_those_that_wait_for_it() -> None:
    """Rank 0 waits for rank 1, which waits for rank 2, and that one for rank 1."""
    rows = [
        ["0F0", "0B0", "0F1", "0B1"],
        ["1F0", "1B0", "1F1", "1B1"],
        ["2F0", "2F1", "2B0", "2B1"],
    ]
    with pytest.raises(Deadlock) as refused:
        build(rows)
    assert "waits for 2B0, which rank 2 does at position 2, after 2F1" in str(refused.value)
    hops = [(str(a.action), str(b.action)) for a, b in refused.value.cycle]
    assert hops == [("1B0", "2B0"), ("2F1", "1F1")]  # rank 0 waits for them, and is in no cycle
    assert all(f"{a} waits for {b}" in str(refused.value) for a, b in hops)


def test_a_fault_far_in_a_long_grid_is_drawn_near_it() -> None:
    rows = [[str(one) for one in row] for row in build("gpipe", ranks=2, microbatches=40).rows]
    rows[1][50], rows[1][51] = rows[1][51], rows[1][51]
    with pytest.raises(wb.SpecError, match=r"position 51") as refused:
        build(rows)
    drawn = [line for line in str(refused.value).splitlines() if line.startswith("rank ")]
    assert len(drawn) == 2 and max(map(len, drawn)) < 200 and "[1B11]" in drawn[1]
