"""True all-reduces with one thing wrong, at random: each is judged as what it is, in true words.

What is so is known from playing the same moves without a process (programs.py).
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.studies.checking.programs import End, Move, Program, code, play, ring, tree
from workbench.studies.checking.cases import RENDEZVOUS
from workbench.studies.checking.judge import Verdict
from workbench.studies.checking.report import Report

ELEMENTS = 12  # of 2, 3 or 4 chunks alike
MUTATIONS = (
    "drop",
    "twice",
    "swap",
    "wrong peer",
    "other rank's moves",
    "wrong chunk",
    "copy for add",
    "wrong places",
)


@st.composite
def mutants(draw: Any) -> tuple[Program, int, str]:
    """A program with one thing wrong, its chunks, and what was done to it."""
    n = draw(st.integers(2, 4))
    program, parts = draw(st.sampled_from([(ring(n), n), (tree(n), 1)]))
    me = draw(st.integers(0, n - 1))
    row, others = program[me], [rank for rank in range(n) if rank != me]
    how = draw(st.sampled_from(MUTATIONS[: 8 if parts > 1 else 5]))
    taking = [i for i, move in enumerate(row) if not move.sends]
    at = draw(st.sampled_from(taking if "for" in how or "places" in how else range(len(row))))
    move, other = row[at], draw(st.integers(0, len(row) - 1))
    if how == "drop":
        del row[at]
    elif how == "twice":
        row.insert(at, move)
    elif how == "swap":
        row[at], row[other] = row[other], move
    elif how == "wrong peer":
        row[at] = move._replace(peer=draw(st.sampled_from(others)))
    elif how == "other rank's moves":
        program[me] = [one for one in program[draw(st.sampled_from(others))] if one.peer != me]
    elif how == "wrong chunk":
        row[at] = move._replace(chunk=(move.chunk + draw(st.integers(1, parts - 1))) % parts)
    elif how == "copy for add":
        row[at] = move._replace(what="add" if move.what == "copy" else "copy")
    else:  # what arrives here goes where what arrives there belongs, and the other way round
        there = draw(st.sampled_from(taking))
        row[at], row[there] = (
            move._replace(chunk=row[there].chunk),
            row[there]._replace(chunk=move.chunk),
        )
    return program, parts, f"{how}, rank {me}, move {at}"


def check(program: Program, parts: int) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "moves.py"
        file.write_text(code(program, parts))
        return wb.check(
            "all_reduce",
            f"{file}:all_reduce",
            ranks=len(program),
            sizes=(ELEMENTS,),
            dtypes="int64",
            progress=False,
        )


def agrees(case: Verdict, end: End, parts: int) -> None:
    """Is the verdict what came of it, in every word that can be checked?"""
    if case.how == "deadlock":
        _deadlock(case, end)
    elif case.how == "unreceived":
        source, target = _numbers(
            case.words, r"rank (?P<b>\d+) never receive[ds] what rank (?P<a>\d+) sen[dt]s? it"
        )
        waits = end.blocked.get(source)
        if waits is None:  # all came to their end
            assert not end.blocked and end.left[source, target] > 0
            more = re.search(r"and (\d+) more such", case.words)
            assert len(end.left) == 1 + (int(more[1]) if more else 0)
        else:
            assert case.case.mode == RENDEZVOUS and waits == Move("send", target, waits.chunk)
            assert target not in end.blocked
    else:
        assert case.how == ("wrong" if end.wrong else "right"), case.words
        assert not end.blocked and not end.left
        if case.case.elements >= case.case.ranks:
            _held(case, end, parts)
        size = 8 * case.case.elements // parts
        assert case.sent == tuple(count * size for count in end.sent)


def _deadlock(case: Verdict, end: End) -> None:
    deadlock = case.deadlock
    assert deadlock is not None and deadlock.stands
    for stand in deadlock.stands:
        move = end.blocked[stand.rank]
        assert stand.peer == move.peer and stand.doing in (move.what, "recv", "post")
        assert f"comm.{'recv' if not move.sends else move.what}(" in stand.place.text
    ways = zip(deadlock.cycle, (*deadlock.cycle[1:], *deadlock.cycle[:1]), strict=True)
    assert all(end.blocked[one].peer == after for one, after in ways)
    assert deadlock.cycle or deadlock.returned
    assert not {*deadlock.returned} & {*end.blocked}


def _held(case: Verdict, end: End, parts: int) -> None:
    n = case.case.ranks
    assert case.parts == () or all(
        case.parts[rank][chunk] == end.held[rank][chunk * parts // n]
        for rank in range(n)
        for chunk in range(n)
    )
    assert [one.rank for one in case.wrong] == end.wrong
    for one in case.wrong:
        size = case.case.elements // parts
        first, last = one.first // size, one.last // size
        assert all({*counts} == {1} for counts in end.held[one.rank][:first])
        for counts in end.held[one.rank][first : last + 1]:
            lacks = [r for r, count in enumerate(counts) if count == 0]
            extra = [(r, count) for r, count in enumerate(counts) if count > 1]
            match = re.search(r"lacks? the part of ranks? ([\d, ]+)", one.words)
            assert lacks == ([int(r) for r in match[1].split(",")] if match else [])
            more = re.findall(r"rank (\d+)'s part (\d+) times", one.words)
            assert extra == [(int(r), int(count)) for r, count in more]


def _numbers(words: str, pattern: str) -> tuple[int, int]:
    match = re.search(pattern, words)
    assert match, words
    return int(match["a"]), int(match["b"])


def judged_truly(program: Program, parts: int) -> None:
    report = check(program, parts)
    ends = {
        case.case.mode: play(program, parts, case.case.mode == RENDEZVOUS) for case in report.cases
    }
    assert len(report.cases) == len(ends) == 2
    for case in report.cases:
        agrees(case, ends[case.case.mode], parts)
    assert report.ok == all(end.right for end in ends.values())
    worst = report.worst
    if worst is not None:
        assert worst.words in report.headline and "correct" not in report.headline
        hidden = worst.case.mode == RENDEZVOUS and ends["eager"].right
        assert ("only when it is received" in report.headline) >= hidden


@pytest.mark.parametrize("make", [ring, tree])
def test_the_true_ones_are_right(make: Any) -> None:
    program, parts = make(3), 3 if make is ring else 1
    judged_truly(program, parts)
    assert all(play(program, parts, mode).right for mode in (True, False))


LOOSE: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@pytest.mark.full
@settings(max_examples=25, derandomize=True, **LOOSE)
@given(mutants())
def test_each_is_judged_as_what_it_is(mutant: tuple[Program, int, str]) -> None:
    judged_truly(*mutant[:2])


@pytest.mark.full
@pytest.mark.timeout(900)
@settings(max_examples=400, **LOOSE)
@given(mutants())
def test_many_are_judged_as_what_they_are(mutant: tuple[Program, int, str]) -> None:
    judged_truly(*mutant[:2])
