"""Rows of what a killed rank was in: a wait, and the call around it, are written at their end.

Where a process left no last word, the status of each of its lanes says what was under way, and
since when. The rows that it would have written end when it was last seen to be alive. A call so
cut off has the phase ``failed``; its name is the line of the program that a ``detect`` row told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.recording import events
from workbench.recording.events import CODE, COLLECTIVE, CONTEXT, FAILED, RECV, ROW, SEND, WAIT
from workbench.store.rank_reader import status_of
from workbench.store.table import Memory, Records

_OF_MESSAGES = (SEND, RECV, WAIT)
_NO_BYTES = -1


@dataclass
class LaneEnd:
    """The end of a lane's rows: its newest context (none yet: no record), its names the store's;
    its last row's number; of the newest context's call, when its first row began, and its line.
    """

    context: Records
    seq: int = 0  # counted from 1
    began: int = 0
    line: int = 0
    last_ns: int = 0  # when its last row ended

    def enter(self, context: Records) -> None:
        """Begin with a context that is newer."""
        if len(self.context) and context["first"][0] != self.context["first"][0]:
            self.seq = 0  # the place is another lane's from here on
        self.context, self.began, self.line = context, 0, 0

    def take(self, rows: Records, contexts: Records) -> None:
        """Take in rows that were read, with the contexts that they index."""
        self.seq, self.last_ns = int(rows["seq"][-1]), max(self.last_ns, int(rows["end_ns"].max()))
        if not len(self.context):
            return
        of_call = contexts["seq"][rows["context"]] == self.context["seq"][0]
        if of_call.any():
            began = int(rows["start_ns"][of_call].min())
            self.began = min(began, self.began or began)
            lines = rows["phase"][of_call & (rows["kind"] == CODE["detect"])]
            self.line = int(lines[-1]) if len(lines) else self.line


def cut_off(
    trace: Memory, index: int, end: LaneEnd, until: int, number: Callable[[str], int]
) -> Records:
    """Return the rows that lane ``index`` of a killed rank was writing; their context is the newest
    one. ``until``: when the rank was last alive; ``number``: of a name in the store.
    """
    status = status_of(trace, events.LANES_AT + index * events.PAGE + events.STATUS_AT)
    if status is None or not len(end.context):
        return np.zeros(0, ROW)
    _, since, kind, peer, *_, op, step, chunk = status[:11]
    kind -= 1
    collective = int(end.context["collective"][0])
    of_call = op >= 0 and op == int(end.context["op"][0])
    is_message = collective == number("p2p")
    if kind not in (COLLECTIVE, *_OF_MESSAGES) or (op >= 0 and not of_call):
        return np.zeros(0, ROW)
    parts: list[Mapping[str, Any]] = []
    until = max(until, since)
    if kind == WAIT:
        parts.append({"kind": WAIT, "start_ns": since, "peer": peer, "step": step, "chunk": chunk})
    if of_call and not is_message:
        began = min(since, end.began or since)
        parts.append(
            {"kind": COLLECTIVE, "start_ns": began, "phase": number(FAILED), "name": end.line}
        )
    rows: Records = np.zeros(len(parts), ROW)
    for name in ("peer", "step", "chunk", "slot"):
        rows[name] = -1
    rows["nbytes"], rows["value"], rows["end_ns"] = _NO_BYTES, np.nan, until
    rows["seq"] = end.seq + 1 + np.arange(len(parts))
    for row, part in zip(rows, parts, strict=True):
        for name, value in part.items():
            row[name] = value
    return rows


NO_CONTEXT: Records = np.zeros(0, CONTEXT)
