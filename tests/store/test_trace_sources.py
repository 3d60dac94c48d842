"""Which attempt of which job wrote a folder of WORKBENCH_TRACE."""

from __future__ import annotations

import numpy as np

from workbench.recording import events
from workbench.store.trace_sources import Attempts, Origin, linked


def test_stores_that_had_an_agent_in_common_are_of_one_job() -> None:
    """Nodes leave and join: A and B, then A alone, then C and A, each on a store of its own."""
    origins = [
        Origin("first", 0, "a", 10, "a 7 100"),
        Origin("first", 0, "b", 12, "b 7 100"),
        Origin("third", 0, "c", 31, "c 9 400"),
        Origin("third", 0, "a", 30, "a 7 100"),
        Origin("second", 0, "a", 20, "a 7 100"),
        Origin("second", 1, "a", 25, "a 7 100"),
        Origin("another", 0, "a", 40, "a 7 900"),  # a later torchrun with the same number
        Origin("by hand", 0, "a", 50),
        Origin("by hand too", 0, "a", 60),
        Origin("", 0, "a", 70, "a 7 100"),  # has not joined its group
    ]
    links = linked(origins)
    (job,) = {one.job for one in links[:6]}
    assert [one.attempt for one in links] == [0, 0, 3, 3, 1, 2, 0, 0, 0, 0]
    assert [one.job for one in links[6:]] == ["another", "by hand", "by hand too", ""]
    assert job in ("first", "second", "third")
    assert [one.born_ns for one in links] == [one.born_ns for one in origins]


def _header(time_of_day: int, own_clock: int) -> memoryview:
    words = memoryview(bytearray(events.PAGE)).cast("q")
    words[events.H_BORN], words[events.H_BORN_HERE] = time_of_day, own_clock
    return words


def test_a_clock_that_counts_from_another_moment_is_aligned_by_the_time_of_day() -> None:
    second = 10**9
    attempts = Attempts()
    attempts.align(0, _header(1000 * second, 50 * second))
    attempts.align(1, _header(1001 * second, 5051 * second))  # in a time namespace of its own
    attempts.align(2, _header(1002 * second, 52 * second + second // 2))  # within what both may err
    attempts.align(3, _header(1002 * second, 0))  # written before that was known
    assert {rank: shift for rank, shift in attempts.shifts.items() if shift} == {1: -5000 * second}
    rows, contexts = np.zeros(1, events.ROW), np.zeros(1, events.CONTEXT)
    rows["start_ns"], rows["end_ns"] = 5052 * second, 5053 * second
    attempts.number(1, 0, 0, rows, contexts)
    assert (rows["start_ns"][0], rows["end_ns"][0]) == (52 * second, 53 * second)
