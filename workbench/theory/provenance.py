"""The contributions in each chunk, on each rank, at each moment: a replay of send, recv and reduce
rows.

Nothing else is known here: no algorithm, no schedule. The rules, for one slot of one chunk:

* a rank begins with its own part, once;
* a ``send`` carries what the rank holds;
* a ``recv`` named "fused" adds what was carried; a plain one replaces what the rank holds, unless a
  ``reduce`` row from the same peer at the same step adds it;
* a ``reduce`` row whose peer is the rank itself adds the rank's own part, kept aside;
* in a barrier, where no data travel, every ``recv`` adds the ranks that have been heard of.

Parts are counted, so that one that is in twice shows as 2. On a rank, time decides what came first.
Where a receive and a send overlap, the step does: what arrived at an earlier step is in what
leaves (a fused relay adds while it sends), what arrives at the same step is not (an exchange).
Where a relay passes a sum on without storing it, it counts as held until something replaces it.

Chunks and slots never mix, so the k-th event of every one of them is replayed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

OP = ["generation", "group", "collective", "op"]
CELL = [*OP, "chunk", "slot"]  # the columns of one cell: each is replayed by itself
MESSAGE = [*CELL, "step", "source", "target"]  # equal in a message's send and recv
TEXTS = ["lane", "kind", "collective", "algorithm", "phase", "group", "name"]
OWN, LOST = (
    -1,
    -2,
)  # instead of a send's number: the rank's own part; a send that is not in the table

Counts = npt.NDArray[np.int32]


def plain_texts(events: pl.DataFrame) -> pl.DataFrame:
    """Return ``events`` with strings instead of categories, whose numbers differ between frames."""
    return events.with_columns(pl.col(TEXTS).cast(pl.String))


def members(events: pl.DataFrame) -> pl.DataFrame:
    """Return the members of groups: generation, group, rank, place (in rank order), size."""
    talk = events.filter(pl.col("kind").is_in(["collective", "send", "recv"]) & (pl.col("op") >= 0))
    ranks = talk.select("generation", "group", "rank").unique()
    peers = talk.filter(pl.col("peer") >= 0).select("generation", "group", rank="peer").unique()
    group = ["generation", "group"]
    return (
        pl.concat([ranks, peers])
        .unique()
        .sort(*group, "rank")
        .with_columns(
            place=pl.int_range(pl.len()).over(group), size=pl.len().over(group).cast(pl.Int64)
        )
    )


def ends(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Return the rows of ``kind`` with the message's source and target instead of rank and peer."""
    sent = kind == "send"
    return rows.filter(pl.col("kind") == kind).rename(
        {"rank": "source", "peer": "target"} if sent else {"peer": "source", "rank": "target"}
    )


@dataclass(frozen=True)
class Replay:
    """The contributions that ranks held.

    Axis 0 of ``final``: rows of ``cells``; 1 and 2: places in the group.
    """

    cells: pl.DataFrame  # CELL, size
    final: Counts  # cell, holder, contributor -> how many times
    changes: pl.DataFrame  # cell, place, time_ns: one row each time that a rank's part changed
    after: Counts  # change, contributor


def replay(events: pl.DataFrame, roster: pl.DataFrame) -> Replay:
    """Replay all messages in ``events`` (with ``plain_texts``); ``roster`` is ``members``."""
    rows = events.filter(pl.col("kind").is_in(["send", "recv", "reduce"])).with_columns(
        name=pl.when(pl.col("collective") == "barrier").then(pl.lit("fused")).otherwise("name")
    )
    sizes = roster.group_by("generation", "group").agg(pl.col("size").first())
    cells = rows.select(CELL).unique(maintain_order=True).join(sizes, on=["generation", "group"])
    cells = cells.with_row_index("cell")
    rows = rows.join(cells.drop("size"), on=CELL).join(roster.drop("size"), on=[*OP[:2], "rank"])
    n = max(roster["size"].to_list(), default=0)
    rows = rows.with_columns(queue=pl.col("cell").cast(pl.Int64) * n + pl.col("place"))

    sends = (
        ends(rows, "send").with_row_index("number").with_columns(pl.col("number").cast(pl.Int64))
    )
    arrivals = _arrivals(rows, sends)
    order = _order(sends, arrivals)
    final, after = _play(order, len(sends), arrivals.height, len(cells), n)
    changes = arrivals.select("cell", place=pl.col("queue") % max(n, 1), time_ns=pl.col("end_ns"))
    return Replay(cells, final, changes, after)


def _arrivals(rows: pl.DataFrame, sends: pl.DataFrame) -> pl.DataFrame:
    """Return the changes of ranks' contributions; ``number``: the send that each waits for."""
    received = ends(rows, "recv").join(
        sends.select(*MESSAGE, "number").unique(MESSAGE, keep="first"), on=MESSAGE, how="left"
    )
    reduced = ends(rows, "reduce")
    local = reduced.filter(pl.col("source") == pl.col("target"))
    waiting = received.select(*MESSAGE, "number").unique(MESSAGE, keep="first")
    added = reduced.join(waiting, on=MESSAGE)
    fused = pl.col("name") == "fused"
    at_once = pl.concat(
        [received.filter(fused), received.filter(~fused).join(reduced, on=MESSAGE, how="anti")]
    )
    columns = ["queue", "cell", "start_ns", "end_ns", "step"]
    return (
        pl.concat(
            [
                at_once.select(*columns, pl.col("number").fill_null(LOST), adds=fused),
                added.select(*columns, pl.col("number").fill_null(LOST), adds=pl.lit(True)),
                local.select(*columns, number=pl.lit(OWN, pl.Int64), adds=pl.lit(True)),
            ]
        )
        .sort("queue", "end_ns", "step", maintain_order=True)
        .with_columns(index=pl.int_range(pl.len()).over("queue").cast(pl.Int64))
    )


def _order(sends: pl.DataFrame, arrivals: pl.DataFrame) -> pl.DataFrame:
    """Return sends and arrivals of every queue, in the order of effect.

    A queue is a rank's share of a cell.
    """
    left = sends.select("number", "queue", "step", "start_ns", "end_ns")
    pairs = left.join(arrivals.select("queue", "start_ns", "end_ns", "step", "index"), on="queue")
    came_before = pl.col("end_ns_right") < pl.col("start_ns")
    overlap = (pl.col("start_ns_right") < pl.col("end_ns")) & ~came_before
    touch = pl.col("end_ns_right") == pl.col("start_ns")
    earlier_step = pl.col("step_right") < pl.col("step")
    known = (
        pairs.filter(came_before | ((overlap | touch) & earlier_step))
        .group_by("number")
        .agg(pl.col("index").max() + 1)
    )
    leaving = left.join(known, on="number", how="left").select(
        "queue", pl.col("index").fill_null(0), "number", arrival=pl.lit(-1, pl.Int64), adds=False
    )
    coming = arrivals.with_row_index("arrival").select(
        "queue", "index", "number", pl.col("arrival").cast(pl.Int64), "adds"
    )
    return pl.concat([leaving, coming]).sort("queue", "index", pl.col("arrival") >= 0, "number")


def _play(
    order: pl.DataFrame, sends: int, arrivals: int, cells: int, n: int
) -> tuple[Counts, Counts]:
    """Let every queue go on by one event where it can, again and again: arrivals wait for sends."""
    number, arrival = order["number"].to_numpy(), order["arrival"].to_numpy()
    adds = order["adds"].to_numpy()
    held = np.tile(np.eye(n, dtype=np.int32), (cells, 1, 1)).reshape(cells * n, n)
    before = held.copy()
    carried = np.zeros((sends, n), np.int32)
    done = np.zeros(sends + 1, bool)  # the last is for OWN and LOST, which wait for nothing
    done[-1] = True
    after = np.zeros((arrivals, n), np.int32)
    queues, at = np.unique(order["queue"].to_numpy(), return_index=True)
    stop = np.append(at[1:], len(order))

    while len(queues):
        is_send = arrival[at] < 0
        ready = is_send | done[np.maximum(number[at], -1)]
        if not ready.any():  # arrivals that wait for each other: the table is not a record of a run
            ready[:] = True
        leaving, coming = ready & is_send, ready & ~is_send
        carried[number[at[leaving]]] = held[queues[leaving]]
        done[number[at[leaving]]] = True

        event, queue = at[coming], queues[coming]
        sent = np.maximum(number[event], 0)
        what = np.where((number[event] >= 0)[:, None], carried[sent], 0) if sends else 0
        what = np.where((number[event] == OWN)[:, None], before[queue], what)
        held[queue] = what + np.where(adds[event][:, None], held[queue], 0)
        after[arrival[event]] = held[queue]

        at = at + ready
        going_on = at < stop
        queues, at, stop = queues[going_on], at[going_on], stop[going_on]
    return held.reshape(cells, n, n), after


def contributors(
    events: pl.DataFrame, op: int, group: str = "default", generation: int | None = None
) -> pl.DataFrame:
    """Return the contributions in one collective's chunks, over time: a row per change.

    ``events``: of a run. ``op``, ``group``: of the collective. Columns, in the order of time:
    ``time_ns``, ``rank``, ``chunk``, ``slot`` and ``contributors``: how many times each rank's
    contribution is in, in rank order. The first rows, at the collective's start, hold every rank's
    own. ``generation``: if not given, the newest. Empty for an unknown ``op``.
    """
    mine = plain_texts(events.filter(pl.col("group") == group))
    if generation is None:
        last = mine.filter(pl.col("op") == op)["generation"].max()
        generation = int(last) if isinstance(last, int) else 0
    mine = mine.filter(pl.col("generation") == generation)
    roster = members(mine)
    rows = mine.filter(pl.col("op") == op, pl.col("collective") != "p2p")
    result = replay(rows, roster)
    n = roster.height
    start = rows["start_ns"].min()
    first = pl.DataFrame(
        {
            "cell": np.repeat(np.arange(len(result.cells), dtype=np.uint32), n),
            "place": np.tile(np.arange(n), len(result.cells)),
        }
    ).with_columns(time_ns=pl.lit(start, pl.Int64))
    counts = np.concatenate(
        [np.tile(np.eye(n, dtype=np.int32), (len(result.cells), 1)), result.after]
    )
    frames = pl.concat([first, result.changes]).with_columns(
        contributors=pl.Series(counts.tolist(), dtype=pl.List(pl.Int32))
    )
    return (
        frames.join(result.cells.select("cell", "chunk", "slot"), on="cell")
        .join(roster.select("place", "rank"), on="place")
        .select("time_ns", "rank", "chunk", "slot", "contributors")
        .sort("time_ns", maintain_order=True)
    )
