"""The failure of an attached job, from the records that its ranks have left in their folder.

A rank that raised says so; one that was killed leaves no word. Of several the one that lost a peer
is a consequence, as is most often one that was killed after another had raised: torchrun does that.
Ranks that were killed after a long wait hung, and were ended from outside: then the reason is which
rank waited for which, and not a rank's end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import polars as pl

from workbench.common.errors import How, PeerLost, RankError, RunTimeout, WorkbenchError
from workbench.recording.events import FAILED
from workbench.runs.failure import as_facts
from workbench.store.restarts import Ended

LONG_S = 1.0  # a wait that was cut off after so long was a hang
_GAVE_UP = ("PeerLost", "RunTimeout")


@dataclass(frozen=True)
class Wait:
    """A rank's last wait. ``call``: "all_reduce 1 of [0, 1] (train.py:9)"."""

    rank: int
    peer: int
    seconds: float
    call: str


def job_failure(
    ends: Mapping[int, Ended], pids: Mapping[int, int], events: pl.DataFrame, groups: str = "{}"
) -> WorkbenchError | None:
    """Return why the job failed whose ranks have ended so; None if all have ended well.

    ``groups``: the ranks of its groups, as a store's metadata has them.
    """
    bad = {rank: one for rank, one in sorted(ends.items()) if one.words != ""}
    if not bad:
        return None
    if hang := _hang(bad, last_waits(events, [*bad], groups)):
        return hang
    cause = min(bad, key=lambda r: (bad[r].kind == "PeerLost", not bad[r].words, bad[r].at, r))
    rest = [rank for rank in bad if rank != cause]
    after = f" Then rank{'s' * (len(rest) > 1)} {', '.join(map(str, rest))} ended too."
    doing = "" if bad[cause].words else _doing(events, cause)
    text = (
        f"rank {cause} (process {pids[cause]}) {end_words(bad[cause])}"
        f"{f', in {doing}' if doing else ''}".rstrip(".")
    )
    how: How = "raised" if bad[cause].words else "killed"
    kind = PeerLost if how == "killed" else RankError
    return kind(f"{text}.{after if rest else ''}", cause, how=how, doing=doing)


def end_words(end: Ended) -> str:
    """Return how a rank ended that did not end well."""
    return f"raised {end.words}" if end.words else "was killed, or crashed without a last word"


def note_failure(
    metadata: MutableMapping[str, str],
    ends: Mapping[int, Ended],
    pids: Mapping[int, int],
    events: pl.DataFrame,
) -> None:
    """Put why the job failed, and a circle of waits, where pages and records look for them."""
    error = job_failure(ends, pids, events, metadata.get("groups", "{}"))
    if error is not None:
        metadata["error"], metadata["failure"] = str(error), json.dumps(as_facts(error))
        circle = circle_of(last_waits(events, [*ends]))
        if circle and isinstance(error, RunTimeout):
            metadata["deadlock"] = ",".join(map(str, circle))


def last_waits(events: pl.DataFrame, ranks: Sequence[int], groups: str = "{}") -> dict[int, Wait]:
    """Return the waits of these ranks that were the last that they did, and long."""
    texts = [pl.col(name).cast(pl.String) for name in ("kind", "group", "collective", "name")]
    rows = events.select("rank", "peer", "op", "start_ns", "end_ns", "phase", *texts)
    waits = rows.filter(pl.col("kind") == "wait", pl.col("rank").is_in(ranks)).sort("end_ns")
    result = {}
    for one in waits.group_by("rank", maintain_order=True).last().iter_rows(named=True):
        seconds = (one["end_ns"] - one["start_ns"]) * 1e-9
        of_call = rows.filter(
            kind="collective", rank=one["rank"], group=one["group"], op=one["op"]
        ).filter(pl.col("phase").cast(pl.String) == FAILED)
        if seconds >= LONG_S and (of_call.height or one["collective"] == "p2p"):
            line = of_call["name"][0] if of_call.height else ""
            call = _call_words(one["collective"], one["op"], one["group"], line, groups)
            result[one["rank"]] = Wait(one["rank"], one["peer"], seconds, call)
    return result


def circle_of(waits: Mapping[int, Wait]) -> list[int]:
    """Return ranks of which each waits for the next and the last for the first; [] if none do."""
    for first in sorted(waits):
        path = [first]
        while (one := waits.get(path[-1])) is not None:
            if one.peer == first:
                return path
            if one.peer in path:
                break
            path.append(one.peer)
    return []


def _call_words(collective: str, op: int, group: str, line: str, groups: str) -> str:
    ranks = json.loads(groups).get(group)
    what = "a message" if collective == "p2p" else f"{collective} {op + 1}"
    of = f" of {ranks}" if ranks else ""
    return f"{what}{of}{f' ({line})' if line else ''}"


def _hang(bad: Mapping[int, Ended], waits: Mapping[int, Wait]) -> WorkbenchError | None:
    """Return that ranks hung, if those that were killed, or gave up, had waited for long."""
    if any(one.words and one.kind not in _GAVE_UP for one in bad.values()):
        return None  # a rank raised: that is the reason
    killed = [rank for rank, one in bad.items() if one.words is None]
    if circle := circle_of(waits):
        ending = "until they were ended from outside" if killed else "until they gave up"
        return _deadlock([waits[rank] for rank in circle], ending)
    hung = [waits[rank] for rank in killed if rank in waits]
    if not hung:
        return None
    longest = max(hung, key=lambda one: one.seconds)
    others = f"; {len(hung) - 1} more waited, too" if len(hung) > 1 else ""
    peer = f", which waited for rank {waits[longest.peer].peer}" if longest.peer in waits else ""
    return RunTimeout(
        f"rank {longest.rank} waited for rank {longest.peer}{peer} for {longest.seconds:.1f} s in "
        f"{longest.call}{others}; then the ranks were ended from outside",
        how="silent",
        peer=longest.peer,
    )


def _deadlock(circle: Sequence[Wait], ending: str) -> RunTimeout:
    first, *rest = circle
    parts = [f"rank {first.rank} waits for {first.peer} in {first.call}"]
    parts += [f"{one.rank} for {one.peer} in {one.call}" for one in rest]
    seconds = min(one.seconds for one in circle)
    return RunTimeout(
        f"deadlock for {seconds:.1f} s, {ending}: {', '.join(parts)}: a circle", how="silent"
    )


def _doing(events: pl.DataFrame, rank: int) -> str:
    """Return the call that a killed rank was in: "all_reduce 2"; "" if none."""
    rows = events.filter(pl.col("rank") == rank).sort("end_ns").tail(1)
    for row in rows.iter_rows(named=True):
        if str(row["kind"]) == "collective" and str(row["phase"]) == FAILED:
            return f"{row['collective']} {row['op'] + 1}"
    return ""
