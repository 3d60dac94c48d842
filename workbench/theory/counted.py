"""Theory of an algorithm that has only its file: steps, messages and bytes counted by walking it.

The file is run for one rank after the other over a communicator that notes every message and moves
none (walk.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from workbench.collectives import refusal
from workbench.common import extensions
from workbench.common.errors import CollectiveError
from workbench.formulas import Algorithm, Terms, Transfer
from workbench.formulas.model import one_chunk
from workbench.messaging.message import Message
from workbench.theory.walk import Walker, arguments

MOST_ELEMENTS = 1 << 14  # of a walk: larger tensors are walked through on a smaller scale
EVEN = 5040  # elements for each rank, so that parts of them are whole
WHOLE = 1 << 40  # bytes of a slot: no message is cut


class Sent(NamedTuple):
    """A chunk that a rank sends."""

    step: int
    phase: str
    source: int
    target: int
    chunk: int
    elements: int


class Walk(NamedTuple):
    """All messages of one call, and which of them are added to the receiver's values."""

    messages: list[Sent]
    added: set[tuple[int, int, int]]  # step, source, target
    late: bool  # they are added when all messages have left


class _Notes:
    """Takes the place of a rank's slots."""

    def __init__(self, rank: int, into: Walk, phases: list[str]) -> None:
        self.rank, self.walk, self.phases = rank, into, phases
        self.unit, self.moves = 1, list[Any]()  # of walk.py

    def put(self, slot: Message) -> None:
        phase, elements = self.phases[slot.phase], len(slot.x)
        noted = Sent(slot.step, phase, self.rank, slot.peer, slot.chunk, elements)
        self.walk.messages.append(noted)

    def take(self, slot: Message, reduce: Any, *_: Any) -> None:
        if reduce is not None:
            self.walk.added.add((slot.step, slot.peer, self.rank))

    def pass_on(self, slot: Message, to: int, reduce: Any, keep: bool, next_phase: int) -> None:
        self.take(slot, reduce)
        self.put(slot._replace(peer=to, step=slot.step + 1, phase=next_phase))

    def anyone(self) -> int:
        raise CollectiveError("which message comes first is known only when it comes")


class _Notebook(Walker):
    """A rank that notes what it would send, receive and add."""

    def combine(
        self,
        into: Any,
        other: Any,
        reduce: str,
        *,
        frm: int | None = None,
        step: int | None = None,
        **_: Any,
    ) -> None:
        if frm is not None and frm != self.rank:
            self.slots.walk.added.add((self._step if step is None else step, frm, self.rank))
            self.late = True

    late = False


@lru_cache(256)
def walk(operation: str, function: Callable[..., Any], n: int, elements: int) -> Walk:
    """Return the messages between ``n`` ranks in a call on these elements, with root 0.

    Raises CollectiveError if the algorithm receives from any rank.
    """
    recorded, late = Walk([], set(), False), False
    for rank in range(n):
        comm: Any = _Notebook(rank, n, WHOLE, 1)
        phases = [""]

        def number(text: str, phases: list[str] = phases) -> int:
            phases.append(text)
            return len(phases) - 1

        comm.note_in(_Notes(rank, recorded, phases), number)
        function(comm, *arguments(operation, rank, n, elements))
        late = late or comm.late
    ordered = sorted(recorded.messages, key=lambda message: message.step)
    return Walk(ordered, recorded.added, late)


class _Counting(NamedTuple):
    """The numbers of an algorithm, counted in walks of its function over n ranks."""

    operation: str
    name: str
    function: Callable[..., Any]
    takes: Any  # what the file says of the numbers of ranks

    def walked(self, n: int, elements: int = 0) -> Walk:
        if takes := refusal(self.takes, n):
            raise CollectiveError(
                f"{self.operation}: {self.name} does not run on {n} ranks: it takes {takes}"
            )
        return walk(self.operation, self.function, n, elements or EVEN * n)

    def steps(self, n: int) -> int:
        return len({message.step for message in self.walked(n).messages})

    def sends(self, n: int) -> list[int]:
        ends = {(m.step, m.source, m.target) for m in self.walked(n).messages}
        many = Counter(source for _, source, _ in ends)
        return [many[place] for place in range(n)]

    def sent(self, n: int, elements: int) -> list[int]:
        scale = _scale(n, elements)
        by_place = [0] * n
        for message in self.walked(n, elements // scale).messages:
            by_place[message.source] += message.elements * scale
        return by_place

    def schedule(self, n: int) -> list[Transfer]:
        once = self.walked(n)
        return [
            Transfer(
                m.step,
                m.phase,
                m.source,
                m.target,
                max(m.chunk, 0),
                (m.step, m.source, m.target) in once.added,
            )
            for m in once.messages
        ]

    def cut(self, n: int, elements: int) -> list[int]:
        scale = _scale(n, elements)
        sizes = {m.chunk: m.elements * scale for m in self.walked(n, elements // scale).messages}
        return [sizes.get(chunk, 0) for chunk in range(max(sizes, default=0) + 1)]

    def terms(self, n: int, nbytes: float) -> Terms:
        return _terms(self.walked(n), n, nbytes)


def counted(operation: str, name: str) -> Algorithm:
    """Return the algorithm of ``collectives/<operation>_<name>.py`` with all numbers counted.

    They raise CollectiveError if it does not take this number of ranks.
    """
    module = extensions.load("collectives", f"{operation}_{name}")
    count = _Counting(operation, name, getattr(module, operation), getattr(module, "takes", None))
    numbered = _numbered(count.walked)
    return Algorithm(
        name,
        count.steps,
        count.sends,
        count.sent,
        count.terms,
        schedule=count.schedule if numbered else None,
        cut=count.cut if numbered else one_chunk,
        adds_last=_first_walk(count.walked).late,
    )


def _first_walk(walked: Callable[[int], Walk]) -> Walk:
    """Return the walk of the fewest ranks that the algorithm takes, up to 16."""
    for n in (4, *range(2, 17)):
        try:
            return walked(n)
        except CollectiveError:
            continue
    return Walk([], set(), False)


def _numbered(walked: Callable[[int], Walk]) -> bool:
    """Return whether the file numbers its chunks: those of one number are of one size."""
    sizes: dict[int, set[int]] = {}
    for message in _first_walk(walked).messages:
        sizes.setdefault(message.chunk, set()).add(message.elements)
    return all(chunk >= 0 and len(sizes_of) == 1 for chunk, sizes_of in sizes.items())


def _scale(n: int, elements: int) -> int:
    """Return by how much a tensor may be made smaller, as often halved as ranks get whole parts."""
    scale = 1
    while elements // scale > MOST_ELEMENTS and elements % (2 * scale * n) == 0:
        scale *= 2
    return scale


def _terms(once: Walk, n: int, nbytes: float) -> Terms:
    """Return what stands before α, β and γ where each step lasts as long as its largest message,
    and the most that one rank adds in it.
    """
    sent: dict[int, Counter[tuple[int, int]]] = {}
    added: dict[int, Counter[int]] = {}
    for m in once.messages:
        sent.setdefault(m.step, Counter())[m.source, m.target] += m.elements
        if (m.step, m.source, m.target) in once.added:
            added.setdefault(m.step, Counter())[m.target] += m.elements
    share = nbytes / (EVEN * n)
    return Terms(
        len(sent),
        share * sum(max(sent_by.values()) for sent_by in sent.values()),
        share * sum(max(own.values()) for own in added.values()),
    )
