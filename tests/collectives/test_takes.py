"""An algorithm that cannot take every number of ranks says so before anything starts."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.collectives import refusal, takes_of, users_own
from workbench.common.errors import SpecError
from workbench.experiment.checks import check_algorithm
from workbench.launchers.processes.pool import ForkServer
from workbench.process_group.session import Session
from workbench.recording.recorder import Recorder
from workbench.user_code import source
from workbench.user_code.source import Source, capture


def pairs(comm: Any, x: Any) -> Any:
    """Neighbors swap what they have: a sum of two."""
    other = x.clone()
    comm.exchange(x, to=comm.rank ^ 1, into=other, frm=comm.rank ^ 1)
    return x.add_(other)


MOST = 2


def two(p: int) -> str:
    return "" if p == MOST else f"{MOST} ranks"


pairs.takes = two  # type: ignore[attr-defined]

OWN_FILE = textwrap.dedent("""
    def takes(p):
        print("it ran")
        return p % 2 == 0

    def mine(comm, x):
        return x
""")


def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a process was asked for")

    monkeypatch.setattr(ForkServer, "take", refuse)


def test_a_function_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_starts(monkeypatch)
    exp = wb.Experiment(all_reduce=pairs, ranks=3)  # reading it runs none of its code
    with pytest.raises(SpecError, match=r"the source of pairs does not run on 3 ranks: .* 2 ranks"):
        wb.run(exp)
    with pytest.raises(SpecError, match="pairs does not run on 3 ranks: it takes 2 ranks"):
        wb.crossover(pairs, ranks=3, measure=False)
    check_algorithm(exp.replace(ranks=2), trusted=True)
    check_algorithm(exp.replace(ranks=1), trusted=True)  # one rank adds nothing


def test_what_it_takes_travels_with_it() -> None:
    there = capture(pairs).load()
    assert [takes_of(there)(n) for n in (2, 3)] == ["", "2 ranks"]
    assert users_own(there).takes(4) == "2 ranks"  # type: ignore[attr-defined]

    def f(comm: Any, x: Any) -> Any:
        return x

    f.takes = lambda p: ""  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match=r"f.takes has no name to travel under: write it with def"):
        capture(f)


def test_a_file_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_starts(monkeypatch)
    (tmp_path / "own.py").write_text(OWN_FILE)
    exp = wb.Experiment(all_reduce=f"{tmp_path}/own.py:mine", ranks=5)
    assert capsys.readouterr().out == "", "a spec is read, not run"
    with pytest.raises(SpecError, match=r"own.py:mine' does not run on 5 ranks: it takes other"):
        wb.run(exp)
    check_algorithm(exp.replace(ranks=4), trusted=True)


def test_a_file_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were one that takes powers of two alone: the constructor refuses."""
    names = {"collectives": "def takes(p): return '' if not p & (p - 1) else 'powers of two'"}
    real = source.text_of
    monkeypatch.setattr(
        source, "text_of", lambda folder, *rest: names.get(folder) or real(folder, *rest)
    )
    code = f"{names['collectives']}\ndef all_reduce(comm, x): ..."
    monkeypatch.setattr(source, "load", lambda *_: Source(name="all_reduce", code=code).load())
    with pytest.raises(SpecError, match="'ring' does not run on 6 ranks: it takes powers of two"):
        wb.Experiment(all_reduce="ring", ranks=6)
    wb.Experiment(all_reduce="ring", ranks=4)


def test_on_a_rank_a_smaller_group_is_refused_too() -> None:
    own = {("all_reduce", "pairs"): users_own(pairs)}
    here = Session(Recorder.off(0), all_reduce="pairs", functions=own)
    words = here.refusal("all_reduce", "pairs", 3)
    assert words == "all_reduce: pairs does not run on 3 ranks: it takes 2 ranks"
    assert here.refusal("all_reduce", "pairs", 2) == here.refusal("all_reduce", "ring", 3) == ""


def test_a_check_leaves_those_out_and_says_so() -> None:
    report = wb.check("all_reduce", pairs, ranks=3)
    assert not report.cases
    assert "3" in str(report) and "2 ranks" in str(report)


@pytest.mark.parametrize(
    ("takes", "words"),
    [
        (None, ""),
        ("no function", ""),
        (lambda p: None, ""),
        (lambda p: True, ""),
        (lambda p: False, "other numbers of ranks"),
        (lambda p: "even numbers", "even numbers"),
    ],
)
def test_whatever_way_it_says_it(takes: Any, words: str) -> None:
    assert refusal(takes, 3) == words


def test_one_that_fails_is_named() -> None:
    with pytest.raises(SpecError, match=r"takes\(3\) raised ZeroDivisionError"):
        refusal(lambda p: p / 0, 3)
