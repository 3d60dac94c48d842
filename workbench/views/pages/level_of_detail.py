"""Folded time, for a page of a run that records more rows than a page can draw.

    rows of a rank in half a second     forward x 40, send x 900, recv x 900, wait x 900, ...
    as a page gets them                 forward | backward | optimizer | send | wait

The rows stay whole in the store. A rank's time since its last folded row is divided by what it did,
exactly: computing; communication, the part that computing hides included; adding and copying;
waiting; the rest is idle. Each part is one row; its ``value`` is how many rows it stands for, of
computing the sum of theirs; in which order things came is lost within it. The first ranks' rows go
whole while they are few, so that there are chunks to look at; so do rows that take no time, of
every ``stride``-th iteration where they are many.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workbench.recording.events import CODE, CONTEXT, KINDS, ROW
from workbench.views.packing import Passages, joined

MOST = 250_000  # rows per second: with more a page gets folded time
CALM_S = 5.0  # with less than half of it for so long: a page gets all rows again
BUDGET = 40_000  # rows per second of folded time and whole rows, about
WHOLE = 8  # ranks whose rows go whole
SHORTEST_S, LONGEST_S = 0.1, 1.0  # that a folded row covers

# The rows that are written, in the order of their place in the time that they cover ...
PARTS = ("forward", "backward", "weight_grad", "optimizer", "load", "send", "reduce", "wait")
_COMPUTED, _TALK = 5, 6  # so many compute; communication and what computes: the first so many
# ... and which rows they stand for. Outer rows hold others: what is left of them is communication.
_OF = {"recv": "send", "copy": "reduce", "apply": "reduce"}
_OUTER, _NO_TIME = len(PARTS), len(PARTS) + 1
_PART = np.array(
    [
        PARTS.index(_OF.get(kind, kind))
        if _OF.get(kind, kind) in PARTS
        else _OUTER
        if kind in ("collective", "push", "pull")
        else _NO_TIME
        for kind in KINDS
    ]
)
_CODES = np.array([CODE[kind] for kind in PARTS])
_RAREST = 1 << 20
_THINNED = [CODE["metric"], CODE["clock"], CODE["memory"]]
Numbers = npt.NDArray[np.int64]


class LevelOfDetail:
    """Decides how much pages are told. ``folded``: how many rows, and into how many."""

    def __init__(self) -> None:
        self.folds = False
        self.folded = (0, 0)
        self.seconds = SHORTEST_S
        self.stride = 1  # of the iterations whose metrics go
        self._since = np.zeros(0, np.int64)  # by rank: the time up to which pages know it
        self._credit = 0.0
        self._flushed = self._busy_at = -np.inf

    def due(self, per_second: float, now: float) -> bool:
        """Return whether new rows are wanted: always, or once in a while where they are folded."""
        if per_second > MOST / 2:
            self._busy_at = now
        folds = per_second > MOST or (self.folds and now - self._busy_at < CALM_S)
        if folds != self.folds:
            self.folds, self.stride = folds, 1
        return not self.folds or now - self._flushed >= self.seconds

    def take(self, rows: Passages, now: float) -> Passages:
        """Return what pages are told of these rows, which are all since the last call."""
        if not self.folds or not len(rows.rows):
            return rows
        lasted = min(LONGEST_S, now - self._flushed)
        self._flushed = now
        ranks = int(rows.rank.max()) + 1
        self.seconds = min(LONGEST_S, max(SHORTEST_S, 2 * len(PARTS) * ranks / BUDGET))
        few = rows.count[rows.rank < WHOLE].sum()
        self._credit = min(BUDGET / 2, self._credit + lasted * BUDGET / 2)
        whole = WHOLE if few <= self._credit else 0
        self._credit -= few if whole else 0
        return self.fold(rows, whole, lasted * BUDGET / 2)

    def fold(self, rows: Passages, whole: int, most_metrics: float) -> Passages:
        """Return ``rows`` with the time of the ranks from ``whole`` on folded."""
        if not len(rows.rows):
            return rows
        of = np.repeat(np.arange(len(rows.first)), rows.count)
        rank, kind = rows.rank[of].astype(np.int64), rows.rows["kind"].astype(np.int64)
        part = _PART[kind]
        timed = (part != _NO_TIME) & (rank >= whole)
        keeps = ~timed
        iteration = rows.context["iteration"][of]
        metrics = np.isin(kind, _THINNED) & (rank >= whole) & (iteration >= 0)
        while self.stride < _RAREST and (
            (metrics & (iteration % self.stride == 0)).sum() > most_metrics
        ):
            self.stride *= 2
        keeps &= ~metrics | (iteration % self.stride == 0)
        if len(self._since) <= rank.max():
            more = int(rank.max()) + 1 - len(self._since)
            self._since = np.concatenate([self._since, np.zeros(more, np.int64)])
        short = self._folded(rows, of, timed, rank, part)
        self.folded = (
            self.folded[0] + int(len(rows.rows) - keeps.sum()),
            self.folded[1] + len(short.rows),
        )
        spent = rank >= 0
        np.maximum.at(self._since, rank[spent], rows.rows["end_ns"][spent])
        return joined([_chosen(rows, of, keeps), short])

    def _folded(
        self,
        rows: Passages,
        of: Numbers,
        timed: npt.NDArray[np.bool_],
        rank: Numbers,
        part: Numbers,
    ) -> Passages:
        """Return the time of the ``timed`` rows, a row a rank and part."""
        at = np.flatnonzero(timed & (rows.rows["end_ns"] > self._since[rank]))
        if not len(at):
            return joined([])
        at = at[_order(rank[at], rows.rows["start_ns"][at])]
        rank, part, of = rank[at], part[at], of[at]
        end = rows.rows["end_ns"][at]
        begun = self._since.copy()
        first = np.unique(rank, return_index=True)[1]
        fresh = begun[rank[first]] == 0
        begun[rank[first[fresh]]] = rows.rows["start_ns"][at[first[fresh]]]
        start = np.maximum(rows.rows["start_ns"][at], begun[rank])
        ranks, size = len(begun), len(begun) * len(PARTS)
        counts = np.bincount(rank * (_OUTER + 1) + part, minlength=ranks * (_OUTER + 1))
        counts = counts.reshape(ranks, -1)
        lasts = _lengths(rank, part, start, end, ranks)
        hidden = lasts.pop("hidden")
        length = lasts["parts"]
        place = begun[:, None] + np.cumsum(length, axis=1) - length
        which, parts = np.nonzero(length > 0)
        result = np.zeros(len(which), ROW)
        result["kind"] = _CODES[parts]
        result["start_ns"], result["end_ns"] = place[which, parts], (place + length)[which, parts]
        sends = parts == PARTS.index("send")
        result["start_ns"][sends] -= hidden[which[sends]]
        sent = np.where(rows.rows["kind"][at] == CODE["send"], rows.rows["nbytes"][at], 0)
        result["nbytes"] = np.where(sends, np.bincount(rank, sent, ranks)[which], -1)
        queued = np.bincount(
            rank * len(PARTS) + np.minimum(part, _COMPUTED), _known(rows, at), size
        )
        result["value"] = np.where(
            parts < _COMPUTED, queued.reshape(ranks, -1)[which, parts], counts[which, parts]
        )
        for name in ("peer", "step", "chunk", "slot"):
            result[name] = -1
        result["seq"] = 1
        lane, context = self._contexts(rows, of, rank, part, ranks)
        talks = (parts >= _COMPUTED).astype(np.int64)
        key = 2 * which + talks
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        count = np.diff(begins, append=len(key))
        chosen = which[begins]
        return Passages(result, begins, count, chosen, lane[chosen, talks[begins]], context[chosen])

    def _contexts(
        self, rows: Passages, of: Numbers, rank: Numbers, part: Numbers, ranks: int
    ) -> tuple[Numbers, npt.NDArray[np.void]]:
        """Return by rank: its lanes of computing and of communication, and where in training it
        is.
        """
        lane = np.zeros((ranks, 2), np.int64)
        lane[rank, (part >= _COMPUTED).astype(int)] = rows.lane[of]
        context = np.zeros(ranks, CONTEXT)
        for name in ("op", "iteration", "generation", "microbatch", "stage", "version"):
            context[name] = -1
        trains = rows.context["iteration"][of] >= 0
        for name in ("group", "iteration", "generation"):
            context[name][rank[trains]] = rows.context[name][of[trains]]
        context["iteration"] -= np.maximum(context["iteration"], 0) % self.stride
        return lane, context


def _known(rows: Passages, at: Numbers) -> npt.NDArray[np.float64]:
    """Return the values of those rows, 0 for none: how long computing waited for a core."""
    values: npt.NDArray[np.float64] = rows.rows["value"][at]
    return np.nan_to_num(values)


def _order(rank: Numbers, start: Numbers) -> Numbers:
    """Return the order by rank, then start: quick where lanes are in order already."""
    span = int(start.max() - start.min()) + 1
    return np.argsort(rank * span + (start - start.min()), kind="stable")


def _lengths(
    rank: Numbers, part: Numbers, start: Numbers, end: Numbers, ranks: int
) -> dict[str, Numbers]:
    """Return by rank the time of each part, exposed; and how much communication computing hides.
    Rows are in order of rank and start.
    """
    base, span = start.min(), int(end.max() - start.min()) + 1
    start, end = start - base + rank * span, end - base + rank * span

    def union(rows: npt.NDArray[np.bool_]) -> Numbers:
        begin, stop = start[rows], end[rows]
        if not len(begin):
            return np.zeros(ranks, np.int64)
        reach = np.maximum.accumulate(stop)
        begin[1:] = np.maximum(begin[1:], reach[:-1])
        return np.bincount(rank[rows], np.maximum(0, stop - begin), ranks).astype(np.int64)

    upto = [union(part < many) for many in (_COMPUTED, _TALK, _TALK + 1, _OUTER)]
    within = union(part <= _OUTER) - upto[3]
    computed = np.stack([union(part == one) for one in range(_COMPUTED)], axis=1)
    share = upto[0] / np.maximum(1, computed.sum(axis=1))  # 1, but for lanes beside each other
    parts = np.zeros((ranks, len(PARTS)), np.int64)
    parts[:, :_COMPUTED] = computed * share[:, None]
    parts[:, _COMPUTED] = upto[1] - upto[0] + within
    parts[:, _TALK] = upto[2] - upto[1]
    parts[:, _TALK + 1] = upto[3] - upto[2]
    hidden = union(part == _COMPUTED) - (upto[1] - upto[0])
    return {"parts": parts, "hidden": hidden}


def _chosen(rows: Passages, of: Numbers, keeps: npt.NDArray[np.bool_]) -> Passages:
    """Return those rows, without the passages that have none left."""
    count = np.bincount(of[keeps], minlength=len(rows.first))
    left = np.flatnonzero(count)
    count = count[left]
    return Passages(
        rows.rows[keeps],
        np.cumsum(count) - count,
        count,
        rows.rank[left],
        rows.lane[left],
        rows.context[left],
    )
