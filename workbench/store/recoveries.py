"""The recoveries of a run, as they are stored with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

KEY = "recoveries"  # of the metadata
ABSENT = "absent ranks"  # that had not come when training began: rank -> why
REGAINED = "regained"  # of the metadata; "regained 1": from where keys of lost servers came
MODEL = "model of rank"  # of the metadata, where there are several: "model of rank 3": its number
_NUMBERS = ("server", "holder", "owner", "elements", "version", "updates_lost")


@dataclass(frozen=True)
class Regained:
    """Keys of a lost server that another rank goes on with. ``source``: "replica", "pull" (of a
    worker), "checkpoint" or "beginning". ``server``: whose they were, -1 of any that was lost.
    ``holder``: the rank that had them, -1 for a file. ``version``: the updates that they have.
    ``updates_lost``: those that they lack, and that no worker does again.
    """

    source: str
    server: int
    holder: int
    owner: int
    elements: int
    version: int
    updates_lost: int


@dataclass(frozen=True)
class Recovery:
    """One recovery: from which failure, and with which ranks the run went on.

    ``lost``: how ranks ended, by rank. ``failed_in``: the iteration that the furthest of them was
    in, or, where none is lost, that of the others; ``iteration``: the one that training went on
    with. ``members``: the ranks of ``generation``, which follows; ``fresh``: those with a new
    process. ``state``: from where they took what they train: "memory", "checkpoint", or the
    "beginning". ``regained``: keys that did not come from the server that had them; ``go_on``:
    where workers went on, by rank, if not all with ``iteration``.
    """

    generation: int
    lost: Mapping[str, str]
    failed_in: int
    iteration: int
    members: tuple[int, ...]
    fresh: tuple[int, ...]
    state: str
    regained: tuple[Regained, ...] = ()
    go_on: Mapping[int, int] = field(default_factory=dict)

    def as_fields(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def recoveries_of(metadata: Mapping[str, str]) -> list[Recovery]:
    """Return the recoveries of a run, oldest first. What is damaged is left out."""
    result = []
    try:
        for one in json.loads(metadata.get(KEY, "[]")):
            members, fresh = tuple(map(int, one["members"])), tuple(map(int, one["fresh"]))
            lost = {str(int(rank)): str(how) for rank, how in one["lost"].items()}
            numbers = (int(one[name]) for name in ("generation", "failed_in", "iteration"))
            generation, failed_in, iteration = numbers
            state = str(one["state"])
            result.append(Recovery(generation, lost, failed_in, iteration, members, fresh, state))
            result[-1] = _with_regained(result[-1], metadata)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    return result


def absent_of(metadata: Mapping[str, str]) -> dict[int, str]:
    """Return the ranks that a run began without, and why; none where that is damaged."""
    try:
        return {int(rank): str(why) for rank, why in json.loads(metadata.get(ABSENT, "{}")).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _with_regained(one: Recovery, metadata: Mapping[str, str]) -> Recovery:
    """Return a recovery with what its ranks said of it: they decided where to go on."""
    regained = json.loads(metadata.get(f"{REGAINED} {one.generation}", "{}"))
    if not regained:
        return one
    each = tuple(
        Regained(str(part["source"]), *(int(part[name]) for name in _NUMBERS))
        for part in regained["from"]
    )
    go_on = {int(worker): int(at) for worker, at in regained["go_on"]}
    iteration, state = int(regained["iteration"]), str(regained.get("state", one.state))
    return replace(one, iteration=iteration, state=state, regained=each, go_on=go_on)
