"""The laws that every run obeys, checked on its event table alone.

A law is a function from the table to the ``Violation``s found in it, each of which says in words
which rank, operation, step, chunk and slot broke it. ``check_events`` asks all laws.
"""

from __future__ import annotations

import polars as pl

from workbench.common.user_warnings import warn_user
from workbench.laws.collectives import complete_sums, everyone_takes_part, steps_and_bytes
from workbench.laws.experience import conserved_experience
from workbench.laws.results import replicas_identical, sum_error
from workbench.laws.rows import (
    coarser,
    gapless_lanes,
    matched_messages,
    nested_spans,
    ordered_times,
)
from workbench.laws.transitions import conserved_transitions
from workbench.laws.violation import MOST, Violation
from workbench.theory.provenance import contributors, plain_texts

__all__ = [
    "MOST",
    "Violation",
    "check_events",
    "coarser",
    "complete_sums",
    "conserved_experience",
    "conserved_transitions",
    "contributors",
    "everyone_takes_part",
    "gapless_lanes",
    "matched_messages",
    "nested_spans",
    "ordered_times",
    "replicas_identical",
    "steps_and_bytes",
    "sum_error",
]

NOT_JUDGED = "laws that need every chunk (nested spans, matched messages, steps and bytes, sums)"


def check_events(
    events: pl.DataFrame, *, complete: bool = True, itemsize: int = 4
) -> list[Violation]:
    """Check every law of the table that applies; an empty list means that all hold.

    ``events``: the rows. ``complete``: the run ended well. Otherwise (stopped, failed, still live)
    messages may be under way, and only collectives that every member ended are judged, without the
    group's last. ``itemsize``: bytes per element, for ``collective`` rows without a ``value``.

    Where a slow network has made the record coarser, a warning says which laws are not judged.
    """
    events = plain_texts(events)
    of_chunks = list[Violation]()
    if folded := coarser(events):
        warn_user(f"{folded}: {NOT_JUDGED} are not judged")
    else:
        of_chunks += nested_spans(events)
        of_chunks += matched_messages(events, complete=complete)
        of_chunks += steps_and_bytes(events, complete=complete, itemsize=itemsize)
        of_chunks += complete_sums(events, complete=complete)
    return [
        *ordered_times(events),
        *gapless_lanes(events),
        *of_chunks,
        *everyone_takes_part(events, complete=complete),
        *conserved_experience(events, complete=complete),
        *conserved_transitions(events, complete=complete),
    ]
