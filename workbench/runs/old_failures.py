"""The failure of a run saved before errors had fields, parsed from its message.

Those messages change no more. Nothing else reads a message, and no run that is saved now needs it.
"""

from __future__ import annotations

import re
import signal
from typing import Any

from workbench.common.errors import LastReport, PeerLost, RankError, WorkbenchError
from workbench.runs.failure import as_facts, how_of

_BY_DRIVER = re.compile(
    r"rank (\d+)(?: \(process \d+\))? (?:was killed by (SIG\w+)|exited with code (\d+)|ended)"
    r" in iteration (\d+)(?:\. Under way: (.*))?",
    re.S,
)
_BY_SURVIVOR = re.compile(
    r"rank (\d+)(?: \(process \d+\))? (ended|left the group) while rank (\d+) was in (.*?)"
    r"(?: \(found by rank (\d+)\))?",
    re.S,
)
_RAISED = re.compile(r"rank (\d+) raised:\n.*", re.S)


def read_message(text: str) -> dict[str, Any]:
    """Return the facts (``failure.as_facts``) that an old message tells."""
    return as_facts(_read_error(text))


def _read_error(text: str) -> WorkbenchError:
    if match := _BY_DRIVER.fullmatch(text):
        rank, name, code, iteration, under_way = match.groups()
        number = -signal.Signals[name] if name in signal.Signals.__members__ else int(code or 0)
        return PeerLost(
            text,
            int(rank),
            how=how_of(number),
            code=number,
            doing=f"iteration {iteration}",
            under_way=_read_reports(under_way or ""),
        )
    if match := _BY_SURVIVOR.fullmatch(text):
        rank, how, peer, doing, by = match.groups()
        return PeerLost(
            text,
            int(rank),
            peer=int(peer),
            how="ended" if how == "ended" else "left",
            doing=doing,
            found_by=int(by or peer),
        )
    if match := _RAISED.fullmatch(text):
        return RankError(text, int(match[1]), how="raised")
    return WorkbenchError(text)


def _read_reports(text: str) -> list[LastReport]:
    reports = []
    for part in re.split(r"; (?=rank \d+: )", text):
        if not (match := re.fullmatch(r"rank (\d+): (.*)", part, re.S)):
            continue
        rank, words = int(match[1]), match[2]
        if words.startswith("in "):
            reports.append(LastReport(rank, words, words.removeprefix("in ")))
        else:
            error = _read_error(words).as_fields()
            reports.append(LastReport(rank, error.pop("text"), error=error))
    return reports
