"""Stacks that a rank writes when it is asked for them, also in two halves on busy cores."""

from __future__ import annotations

import os

from workbench.rank.stack_dumps import Lookout, StackFrame

LIBRARY = f'Thread 0x1 (most recent call first):\n  File "{os.__file__}", line 9 in wait\n'
OWN = 'Thread 0x2 (most recent call first):\n  File "<source of turns, a1>", line 7 in spins\n'


def lookout(*answers: str) -> tuple[StackFrame | None, int]:
    """Return the place that a lookout reads from these answers, and how often it asked."""
    lookout, left = Lookout(), list(answers)
    os.write(lookout.fd, b"rank 1\n")
    place = lookout.place(1, lambda: os.write(lookout.fd, left.pop(0).encode()) and None)
    lookout.close()
    return place, len(answers) - len(left)


def test_half_an_answer_is_not_taken_for_the_whole() -> None:
    assert lookout(LIBRARY, LIBRARY + OWN) == (StackFrame("<source of turns, a1>", 7, "spins"), 2)


def test_half_a_line_is_not_taken_for_the_whole() -> None:
    assert lookout(OWN[:-4], OWN) == (StackFrame("<source of turns, a1>", 7, "spins"), 2)


def test_the_users_line_is_enough_and_two_equal_answers_without_it_are_too() -> None:
    assert lookout(OWN) == (StackFrame("<source of turns, a1>", 7, "spins"), 1)
    assert lookout(LIBRARY, LIBRARY) == (None, 2)
