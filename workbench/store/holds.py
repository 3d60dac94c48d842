"""Holds of the ranks by a reader, as they are stored with a run: such time is not a rank's."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping

KEY = "holds"  # of the metadata
STILL = 2**62  # ns: the end of a hold that lasts


def note_hold(metadata: MutableMapping[str, str], held: bool, moment_ns: int) -> None:
    """Note that the ranks are held from now on, or that they go on; nothing if that is so."""
    holds: list[list[int]] = json.loads(metadata.get(KEY, "[]"))
    if held == bool(holds and len(holds[-1]) == 1):
        return
    if held:
        holds.append([moment_ns])
    else:
        holds[-1].append(moment_ns)
    metadata[KEY] = json.dumps(holds)


def holds_of(metadata: Mapping[str, str], end_ns: int) -> list[tuple[int, int]]:
    """Return the holds in order, ns of the events' clock; one that was not ended, until ``end_ns``.
    What is damaged is left out.
    """
    try:
        holds = [(int(begin), int(*end or [end_ns])) for begin, *end in json.loads(metadata[KEY])]
    except (KeyError, TypeError, ValueError):
        return []
    return [(begin, end) for begin, end in holds if begin < end]
