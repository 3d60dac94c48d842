"""The formulas against the algorithms' own files: every message, as the code sends it.

An algorithm's file is run for one rank after the other over a communicator that writes down what it
is asked to send and to receive; nothing travels.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from workbench.collectives import algorithms
from workbench.formulas import OPERATIONS, WITH_ROOT, Transfer, expected, levels, lower_bound
from workbench.formulas.bounds import fewest_steps
from workbench.formulas.model import elements_sent
from workbench.messaging.message import Message
from workbench.theory.counted import counted
from workbench.theory.walk import Walker, arguments

KNOWN = [(operation, name) for operation, named in OPERATIONS.items() for name in named]
SLOT = 1 << 20
ITEM = np.dtype(np.float32).itemsize


def test_every_formula_has_its_file() -> None:
    for operation, named in OPERATIONS.items():
        assert set(named) <= set(algorithms(operation))


@pytest.mark.parametrize(("operation", "name"), KNOWN)
def test_numbers_counted_in_the_file_are_those_of_the_formula(operation: str, name: str) -> None:
    """So may a file be without a formula: what is counted of it is right."""
    formula, own = OPERATIONS[operation][name], counted(operation, name)
    assert own.schedule is not None and formula.schedule is not None
    for n in (2, 3, 4, 5, 7, 8, 12):
        assert own.steps(n) == formula.steps(n) and own.sends(n) == formula.sends(n)
        for elements in (n, 3 * n, 1000 * n, n << 20):
            assert own.sent(n, elements) == formula.sent(n, elements)
        for each, nbytes in ((own.terms(n, 1e6), 1e6), (own.terms(n, 8), 8)):
            assert each == pytest.approx(formula.terms(n, nbytes))
        replaces = {one._replace(adds=False) for one in own.schedule(n)}
        assert replaces == {one._replace(adds=False) for one in formula.schedule(n)}
        sizes, known = own.cut(n, 1000 * n), formula.cut(n, 1000 * n)
        assert all(sizes[one.chunk] == known[one.chunk] for one in own.schedule(n))


# -- the code, written down --


class Written:
    """Takes the place of a rank's slots, and writes down each message's ends."""

    def __init__(self, rank: int, phases: list[str]) -> None:
        self.rank, self.phases = rank, phases
        self.unit, self.moves = 1, list[Any]()  # of a walk, and of no interest here
        self.left: Counter[tuple[Any, ...]] = Counter()  # step, phase, source, target, chunk
        self.came: Counter[tuple[Any, ...]] = Counter()
        self.elements = 0

    def put(self, message: Message) -> None:
        _, to, step, chunk, slot, phase = message
        self.elements += len(message.x)
        self.left[step, self.phases[phase], self.rank, to, chunk, slot] += 1

    def take(self, message: Message, reduce: Any, before: bool = False) -> None:
        _, frm, step, chunk, slot, phase = message
        self.came[step, self.phases[phase], frm, self.rank, chunk, slot] += 1

    def pass_on(self, message: Message, to: int, reduce: Any, keep: bool, next_phase: int) -> None:
        self.take(message, reduce)
        self.put(message._replace(peer=to, step=message.step + 1, phase=next_phase))


def written(operation: str, name: str, n: int, elements: int, root: int = 0) -> list[Written]:
    """Return what each rank's code sends and receives of a tensor of float32."""
    module = __import__(f"workbench.collectives.{operation}_{name}", fromlist=[operation])
    messages = []
    for rank in range(n):
        comm, phases = Walker(rank, n, SLOT, 1), list[str]()

        def number(text: str, phases: list[str] = phases) -> int:
            phases.append(text)
            return len(phases) - 1

        comm.note_in(Written(rank, phases), number)
        inputs = arguments(operation, rank, n, elements, root, np.float32)
        getattr(module, operation)(comm, *inputs)
        messages.append(comm.slots)
    return messages


def seen_from(root: int, n: int, operation: str, t: Transfer) -> tuple[Any, ...]:
    chunk = (t.chunk + root) % n if operation in ("gather", "scatter") else t.chunk
    return t.step, t.phase, (t.source + root) % n, (t.target + root) % n, chunk, 0


@pytest.mark.parametrize(("operation", "name"), KNOWN)
def test_the_schedule_is_what_the_code_does(operation: str, name: str) -> None:
    formula = OPERATIONS[operation][name]
    assert formula.schedule is not None
    for n in (2, 3, 4, 5, 6, 7, 8, 9, 12, 16):
        for root in {0, 1, n - 1} if operation in WITH_ROOT else {0}:
            ranks = written(operation, name, n, 8 * n, root)
            planned = Counter(seen_from(root, n, operation, t) for t in formula.schedule(n))
            left: Counter[tuple[Any, ...]] = sum((r.left for r in ranks), Counter())
            came: Counter[tuple[Any, ...]] = sum((r.came for r in ranks), Counter())
            assert left == planned == came, f"{n} ranks, root {root}"


@pytest.mark.parametrize(("operation", "name"), KNOWN)
def test_bytes_are_what_the_code_sends(operation: str, name: str) -> None:
    whole = ("gather", "scatter", "all_gather", "reduce_scatter", "all_to_all")
    for n in (2, 3, 4, 5, 7, 8, 12):
        for elements in (n, 3 * n, 1000 * n) if operation in whole else (1, n - 1, n, n + 1, 1023):
            sent = [rank.elements for rank in written(operation, name, n, elements)]
            assert sent == OPERATIONS[operation][name].sent(n, elements), f"{n}: {elements}"


# -- the formulas among themselves --


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 13, 16])
def test_formulas_count_what_the_schedule_has(n: int) -> None:
    for operation, name in KNOWN:
        counts_what_the_schedule_has(operation, name, n)


def counts_what_the_schedule_has(operation: str, name: str, n: int) -> None:
    formula = OPERATIONS[operation][name]
    transfers = formula.schedule(n) if formula.schedule else []
    assert [t.step for t in transfers] == sorted(t.step for t in transfers)
    assert {t.step for t in transfers} == set(range(formula.steps(n)))
    ends = {(t.step, t.source, t.target) for t in transfers}
    messages = Counter(source for _, source, _ in ends)
    assert [messages[place] for place in range(n)] == formula.sends(n)
    for elements in (1, n - 1, n, n + 1, 1000, 1023, 4097):
        sizes = formula.cut(n, elements)
        assert formula.sent(n, elements) == elements_sent(transfers, n, sizes)


@pytest.mark.parametrize(("operation", "name"), KNOWN)
def test_ranks_that_follow_the_schedule_end_with_what_is_expected(
    operation: str, name: str
) -> None:
    """Sets of contributors, sent and added step by step: the algorithm itself is right."""
    for n in (2, 3, 4, 5, 6, 7, 8, 13, 16):
        follows_the_schedule(operation, name, n)


def follows_the_schedule(operation: str, name: str, n: int) -> None:
    formula = OPERATIONS[operation][name]
    assert formula.schedule is not None
    transfers = formula.schedule(n)
    chunks = 1 + max(t.chunk for t in transfers)
    held = np.tile(np.eye(n, dtype=int), (chunks, 1, 1))
    late = np.zeros_like(held)
    for step in range(formula.steps(n)):
        before = held.copy()
        for t in (t for t in transfers if t.step == step):
            came = before[t.chunk, t.source]
            if formula.adds_last:
                late[t.chunk, t.target] += came
            elif t.adds or operation == "barrier":
                held[t.chunk, t.target] += came
            else:
                held[t.chunk, t.target] = came
    held += late
    for chunk, row in enumerate(expected(operation, n, 0, chunks)):
        for place, parts in enumerate(row):
            got = tuple(held[chunk, place].tolist())
            if parts is not None:
                whole = all(got) if operation == "barrier" else got == parts
                assert whole, f"place {place}, chunk {chunk}: {got}, expected {parts}"


@pytest.mark.parametrize(("operation", "name"), KNOWN)
def test_none_is_better_than_possible(operation: str, name: str) -> None:
    formula = OPERATIONS[operation][name]
    for n in range(2, 18):
        elements = 720_720 * 17  # whole chunks of all n
        assert max(formula.sent(n, elements)) >= lower_bound(n, elements, operation) - 1e-6
        assert formula.steps(n) >= fewest_steps(n)


def test_levels_are_the_most_even_factors() -> None:
    assert [levels(n) for n in (1, 2, 4, 6, 7, 8, 12, 16)] == [
        [1],
        [2],
        [2, 2],
        [3, 2],
        [7],
        [4, 2],
        [4, 3],
        [4, 4],
    ]


# -- what must be held at the end --


def test_what_must_be_held_worked_by_hand() -> None:
    assert expected("all_reduce", 2) == [[(1, 1), (1, 1)], [(1, 1), (1, 1)]]
    assert expected("broadcast", 3, root=1, chunks=1) == [[(0, 1, 0)] * 3]
    assert expected("reduce", 3, root=2, chunks=1) == [[None, None, (1, 1, 1)]]
    assert expected("gather", 2, root=1) == [[None, (1, 0)], [None, (0, 1)]]
    assert expected("scatter", 2, root=1) == [[(0, 1), None], [None, (0, 1)]]
    assert expected("all_gather", 2) == [[(1, 0), (1, 0)], [(0, 1), (0, 1)]]
    assert expected("reduce_scatter", 2) == [[(1, 1), None], [None, (1, 1)]]
    assert expected("all_to_all", 2) == [  # from 0 to 0, from 0 to 1, ...
        [(1, 0), None],
        [None, (1, 0)],
        [(0, 1), None],
        [None, (0, 1)],
    ]
    assert expected("barrier", 2, chunks=1) == [[(1, 1), (1, 1)]]
    with pytest.raises(ValueError, match="no operation 'gatehr'; there are all_reduce, broadcast"):
        expected("gatehr", 2)
