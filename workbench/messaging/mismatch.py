"""The error for a message other than the expected one, in terms of the calls of both ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

from workbench.common.errors import CollectiveError
from workbench.messaging.fingerprint import describe
from workbench.messaging.watchdog import disagreement
from workbench.transports.mailbox import Header


class Side(NamedTuple):
    """A rank, and the collective that its message belongs to."""

    rank: int  # of the world
    op: int
    signature: int
    generation: int
    page: Any  # the peer's page about its calls; None: it is on another host


def mismatch(mine: Side, theirs: Side, doing: str, header: Header, nbytes: int) -> CollectiveError:
    """Return the error of a message whose ``header`` does not fit; ``nbytes`` were expected."""
    me, peer = mine.rank, theirs.rank
    if theirs.generation != mine.generation:
        return CollectiveError(
            f"rank {peer} sent a message of generation {theirs.generation} to rank {me}, "
            f"which is in generation {mine.generation}",
            me,
            peer=peer,
            doing=doing,
        )
    if theirs.op != mine.op:
        return _other_collective(mine, theirs, doing)
    if theirs.signature != mine.signature:
        sides = (me, mine.signature, mine.page), (peer, theirs.signature, theirs.page)
        return disagreement(mine.op, *sides)
    return CollectiveError(
        f"rank {me} expected {nbytes:,} bytes from rank {peer} in {doing}, and got "
        f"{header.nbytes:,} (rank {peer}'s step {header.step + 1}, chunk {header.chunk}): "
        "the ranks' sizes or schedules differ",
        me,
        peer=peer,
        doing=doing,
    )


def _other_collective(mine: Side, theirs: Side, doing: str) -> CollectiveError:
    """Return the error of a message of another collective: the first of the two shows the cause.

    A rank that only sends has finished its part, whatever the others passed to it.
    """
    me, peer = mine.rank, theirs.rank
    op, ours, others = _passed(mine, theirs)
    if ours is None or others is None:  # long ago, or on another host
        return CollectiveError(
            f"ranks disagree about the order of calls: rank {me} is in collective {mine.op + 1} "
            f"({describe(mine.signature)}), rank {peer} in collective {theirs.op + 1} "
            f"({describe(theirs.signature)})",
            me,
            peer=peer,
            doing=doing,
        )
    if ours != others:
        return disagreement(op, (me, ours, mine.page), (peer, others, theirs.page))
    more, took = ("more", "took") if theirs.op < mine.op else ("less", "expects")
    return CollectiveError(
        f"rank {peer} sent rank {me} {more} in collective {op + 1} ({describe(ours)}) than rank "
        f"{me} {took}: the ranks' sizes or schedules differ",
        me,
        peer=peer,
        doing=doing,
    )


def _passed(mine: Side, theirs: Side) -> tuple[int, int | None, int | None]:
    """Return the earlier of two collectives that are under way, and the signatures with which the
    two ranks called it; None: not known any more.
    """
    if theirs.op < mine.op:
        return theirs.op, mine.page.signature(theirs.op), theirs.signature
    known = None if theirs.page is None else theirs.page.signature(mine.op)
    return mine.op, mine.signature, known
