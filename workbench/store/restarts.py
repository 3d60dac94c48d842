"""Restarts of a job by torchrun (``--max-restarts``, ``--nnodes MIN:MAX``), told as recoveries are:
each attempt is a generation, all of whose ranks are new processes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.recording import events
from workbench.recording.events import NAMES_AT, NAMES_BYTES, PAGE
from workbench.store.recoveries import Recovery
from workbench.store.regular_file import opened
from workbench.store.table import NameTable
from workbench.store.trace_sources import Source

STATE = "restarted"  # of such a recovery


@dataclass(frozen=True)
class Ended:
    """The end of one process of a rank. ``words``: what it raised, "" where it ended well; None:
    it left no word. ``kind``: the class of its error. ``at``: when it is last known to have been
    alive, in ns.
    """

    words: str | None
    kind: str
    at: float


def ended_in(source: Source, at: float) -> Ended:
    """Return how the process ended that wrote this folder, by the header of its trace."""
    with contextlib.suppress(OSError, ValueError), opened(source.folder / "trace") as file:
        data = file.read(NAMES_AT + NAMES_BYTES)
        if len(data) == NAMES_AT + NAMES_BYTES:
            names = NameTable(lambda _: 0, memoryview(data))
            names.read()
            return replace(ended_with(memoryview(data)[:PAGE].cast("q"), names), at=at)
    return Ended(None, "", at)


def ended_with(words: memoryview, names: NameTable) -> Ended:
    """Return how a process ended, by the words of its header."""
    end, error = words[events.H_END], words[events.H_ERROR]
    last = names.text(end - 1) if end else None
    with contextlib.suppress(ValueError, AttributeError):  # of another version, or damaged
        return Ended(last, str(json.loads(names.text(error - 1)).get("kind", "")), 0)
    return Ended(last, (last or "").partition(":")[0], 0)


def ends_as_text(ends: Mapping[int, Ended]) -> str:
    """Return how ranks ended, as a store's metadata has it."""
    return json.dumps({rank: [one.words, one.kind, one.at] for rank, one in ends.items()})


def ends_of_text(text: str) -> dict[int, Ended]:
    """Return what ``ends_as_text`` wrote; {} of anything else."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        facts = json.loads(text)
        return {
            int(rank): Ended(None if words is None else str(words), str(kind), float(at))
            for rank, (words, kind, at) in facts.items()
        }
    return {}


def lost_in(ends: Mapping[int, Ended]) -> dict[str, str]:
    """Return the rank whose end most likely made torchrun restart an attempt, and how it ended; {}
    where none is known. A rank that lost a peer is a consequence, as is one killed after another
    had raised or exited: torchrun ends the rest.
    """
    bad = {rank: one for rank, one in ends.items() if one.words != ""}
    exited = [rank for rank, one in ends.items() if one.words == ""]
    if exited and not any(one.words and one.kind != "PeerLost" for one in bad.values()):
        return {str(exited[0]): "exited"}
    if not bad:
        return {}
    cause = min(bad, key=lambda r: (bad[r].kind == "PeerLost", not bad[r].words, bad[r].at))
    return {str(cause): "raised" if bad[cause].words else "killed"}


def _nodes_changed(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Return whether an attempt was ended because a node joined or left: no agent that went on has
    counted it as a restart, as those do whose rank has failed.
    """
    went_on = before.keys() & after.keys() - {""}
    return bool(went_on) and all(before[agent] == after[agent] for agent in went_on)


def as_metadata(
    members: Mapping[int, Sequence[int]],
    ends: Mapping[int, Mapping[int, Ended]],
    left: Mapping[int, Mapping[str, int]],
) -> str | None:
    """Return the restarts as metadata: by generation its ranks, how those of each ended, and how
    often each agent may still restart (``Origin.left``). None where there was none.
    """
    each = [
        Recovery(
            generation,
            {}
            if _nodes_changed(left.get(generation - 1, {}), left.get(generation, {}))
            else lost_in(ends.get(generation - 1, {})),
            -1,
            -1,
            tuple(sorted(members[generation])),
            tuple(sorted(members[generation])),
            STATE,
        ).as_fields()
        for generation in sorted(members)
        if generation > 0
    ]
    return json.dumps(each) if each else None
