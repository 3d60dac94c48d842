"""What must hold of a run, read from its event table alone.

A law is a function from the table to the ``Violation``s found in it, each of which says in words
which rank, operation, step, chunk and slot broke it. ``check_events`` asks all laws.
"""

from __future__ import annotations

import polars as pl

from workbench.contributors import contributors, plain_texts
from workbench.laws.collectives import complete_sums, everyone_takes_part, steps_and_bytes
from workbench.laws.results import replicas_identical, sum_error
from workbench.laws.rows import gapless_lanes, matched_messages, nested_spans, ordered_times
from workbench.laws.violation import MOST, Violation

__all__ = [
    "MOST",
    "Violation",
    "check_events",
    "complete_sums",
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


def check_events(
    events: pl.DataFrame, *, complete: bool = True, itemsize: int = 4
) -> list[Violation]:
    """Every law of the table that applies; an empty list is a run in which all hold.

    ``complete``: the run ended well. Otherwise (stopped, failed, still live) messages may be under
    way, and only collectives that every member ended, the group's last left out, are judged.
    ``itemsize``: bytes an element, for ``collective`` rows whose ``value`` does not say.
    """
    events = plain_texts(events)
    return [
        *ordered_times(events),
        *gapless_lanes(events),
        *nested_spans(events),
        *matched_messages(events, complete=complete),
        *everyone_takes_part(events, complete=complete),
        *steps_and_bytes(events, complete=complete, itemsize=itemsize),
        *complete_sums(events, complete=complete),
    ]
