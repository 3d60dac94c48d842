"""Lines from a rank to the driver through a real pipe: whole, capped, and none lost."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from workbench.cells.output import MOST_IN_A_LINE, MOST_PRINTED, Lines, Printer
from workbench.cells.result import label, label_lines, together


@pytest.fixture
def pipe() -> Iterator[tuple[Printer, Lines]]:
    read, write = os.pipe()
    lines = Lines(read)
    yield Printer(write), lines
    lines.close()
    os.close(write)


def test_lines_arrive_whole_and_the_rest_when_it_is_old(pipe: tuple[Printer, Lines]) -> None:
    printer, lines = pipe
    print("first\nsec", end="", file=printer)
    assert lines.read() == (["first"], True)
    print("ond\nλ …", end="", file=printer)
    printer.flush()
    assert lines.read() == (["second"], True)
    assert lines.rest(60) == [] and lines.rest() == ["λ …"] and lines.rest() == []


def test_a_progress_bar_is_its_last_state(pipe: tuple[Printer, Lines]) -> None:
    printer, lines = pipe
    print("10 %\r50 %\r100 %\r", file=printer)
    assert lines.read()[0] == ["100 %"]


def test_what_is_beyond_the_cap_is_counted_and_the_next_cell_prints_again(
    pipe: tuple[Printer, Lines],
) -> None:
    printer, lines = pipe
    got = 0
    for _ in range(30):
        print("x" * 9_999, file=printer)
        got += sum(len(line) + 1 for line in lines.read()[0])
    assert printer.lost == 30 * 10_000 - MOST_PRINTED and printer.left == 0
    assert got < MOST_PRINTED  # long lines are cut, too
    printer.begin()
    lines.begin()
    print("again", file=printer)
    assert lines.read()[0][-1] == "again" and printer.lost == 0


def test_what_does_not_go_through_python_is_capped_by_the_driver(
    pipe: tuple[Printer, Lines],
) -> None:
    printer, lines = pipe
    texts = []
    for _ in range(4):
        os.write(printer.fileno(), b"y" * 50_000 + b"\n")
        texts += lines.read()[0]
    assert lines.lost == 4 * 50_001 - MOST_PRINTED
    assert texts[0] == "y" * MOST_IN_A_LINE + f"… ({50_000 - MOST_IN_A_LINE:,} more characters)"


def test_the_end_of_a_pipe_is_seen() -> None:
    read, write = os.pipe()
    lines = Lines(read)
    os.write(write, b"last")
    os.close(write)
    assert lines.read() == ([], False) and lines.rest() == ["last"]
    lines.close()


def test_ranks_that_say_the_same_say_it_together() -> None:
    assert together({0: "a", 2: "b", 1: "a", 3: ""}) == [([0, 1], "a"), ([2], "b")]
    assert [label(some) for some in ([3], [0, 1], [1, 2, 3], [0, 2, 3])] == [
        "[rank 3]",
        "[ranks 0, 1]",
        "[ranks 1-3]",
        "[ranks 0, 2, 3]",
    ]
    assert label_lines([1], "a\nb") == "[rank 1] a\n[rank 1] b"
