"""The laws of a run in which replicas mix, checked on its event table and its header.

``peers``: ``run.peers`` of the header (facts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.common.units import counted
from workbench.laws import MOST, Violation
from workbench.theory.provenance import plain_texts
from workbench.training.gossip.disagreement import disagreement
from workbench.training.gossip.facts import MISSED
from workbench.training.gossip.graphs import Matrix
from workbench.training.gossip.theory import expected_disagreement, rate

__all__ = [
    "along_edges",
    "answered",
    "can_miss",
    "decays",
    "mean_kept",
    "missed",
    "once_a_round",
    "within_bound",
]

WORDS = ("parameters", "update")  # the names of what replicas send
c = pl.col


def messages(events: pl.DataFrame) -> pl.DataFrame:
    """Return the messages that replicas sent.

    Columns rank, peer, op, iteration, nbytes, start_ns, end_ns.
    """
    sent = plain_texts(events).filter(
        c("kind") == "send", c("collective") == "p2p", c("name").is_in(WORDS)
    )
    return (
        sent.group_by("rank", "peer", "op")
        .agg(
            c("iteration").min(),
            c("nbytes").sum(),
            c("start_ns").min(),
            c("end_ns").max(),
        )
        .sort("rank", "peer", "op")
    )


def can_miss(events: pl.DataFrame | pl.LazyFrame) -> bool:
    """Return whether replicas averaged those messages that had come, whichever these were."""
    kind, name = c("kind").cast(pl.String), c("name").cast(pl.String)
    means = events.lazy().filter(kind == "metric", name == "averaged")
    return means.head(1).collect().height > 0


def missed(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return how many messages of MALT no mean has, by edge and reason.

    Columns sender, receiver, why, messages. *left out*: the receiver had not taken the one before;
    *overwritten*: a newer one came before the receiver looked; *too late*: it came after the last
    scatter. The next message holds all that a missed one held.
    """
    sender = pl.when(c("why") == MISSED[0]).then("rank").otherwise("peer")
    receiver = pl.when(c("why") == MISSED[0]).then("peer").otherwise("rank")
    return (
        events.lazy()
        .filter(c("kind").cast(pl.String) == "metric", c("peer") >= 0)
        .with_columns(why=c("name").cast(pl.String))
        .filter(c("why").is_in(MISSED))
        .group_by(sender=sender, receiver=receiver, why="why")
        .agg(messages=pl.len())
        .sort("sender", "receiver", "why")
        .collect()
    )


def within_bound(events: pl.DataFrame, peers: Mapping[str, Any], bound: int) -> list[Violation]:
    """Check MALT's stale synchronous law: a rank's scatter k, from 1, begins to combine when
    message k - bound of every peer has arrived.
    """
    rows, result = plain_texts(events), []
    came = rows.filter(c("kind") == "recv", c("collective") == "p2p", c("name").is_in(WORDS))
    ended = came.group_by("rank", "peer", "op").agg(c("end_ns").max()).sort("end_ns")
    for (rank,), mixes in _mixes(events).group_by(["rank"], maintain_order=True):
        for sender in (a for a, b, _ in peers["edges"] if b == rank):
            arrivals = ended.filter(c("rank") == rank, c("peer") == sender)["end_ns"]
            for k, start in enumerate(mixes["start_ns"], 1):
                if (behind := k - int((arrivals <= start).sum())) > bound:
                    words = (
                        f"rank {rank} combined scatter {k} when rank {sender}'s newest message was "
                        f"{behind} behind: {bound} at most"
                    )
                    result.append(Violation("within bound", words, rank=int(str(rank)), step=k))
    return result[:MOST]


def along_edges(events: pl.DataFrame, peers: Mapping[str, Any]) -> list[Violation]:
    """Check that parameters and updates travel along the graph's edges only."""
    edges = {(a, b) for a, b, _ in peers["edges"]}
    result = messages(events).group_by("rank", "peer").len("times").sort("rank", "peer")
    return [
        Violation(
            "along edges",
            f"rank {row['rank']} sent {counted(row['times'], 'message')} to rank {row['peer']}, "
            "which is not its peer",
            rank=row["rank"],
        )
        for row in result.iter_rows(named=True)
        if (row["rank"], row["peer"]) not in edges
    ][:MOST]


def once_a_round(
    events: pl.DataFrame, peers: Mapping[str, Any], iterations: int
) -> list[Violation]:
    """Check that, with synchronous replicas, each edge carries exactly one message per round."""
    every = peers["every"]
    rounds = set(range(every - 1, iterations, every))
    carried: dict[tuple[int, int], list[int]] = {}
    for row in messages(events).iter_rows(named=True):
        carried.setdefault((row["rank"], row["peer"]), []).append(row["iteration"])
    return [
        Violation(
            "once a round",
            f"rank {a} sent to rank {b} in iterations {_shown(result)}, not once in each of "
            f"{_shown(sorted(rounds))}",
            rank=a,
        )
        for a, b, _ in peers["edges"]
        if sorted(result := carried.get((a, b), [])) != sorted(rounds)
    ][:MOST]


def _shown(iterations: list[int]) -> list[int]:
    """Return the first of these iterations as words count them, from 1."""
    return [one + 1 for one in iterations[:8]]


def answered(events: pl.DataFrame, peers: Mapping[str, Any]) -> list[Violation]:
    """Check that every request of a pair got one answer, and that a rank's means never overlap.

    The answer leaves after the request began to arrive, and before the rank's next request.
    """
    sent = {
        (row["rank"], row["peer"], row["op"]): row for row in messages(events).iter_rows(named=True)
    }
    asks = {row["rank"] for row in _mixes(events, "compute").iter_rows(named=True)}
    result = []
    for (a, b, op), request in sent.items():
        answer, after = sent.get((b, a, op)), sent.get((a, b, op + 1))
        if a not in asks:
            if (b, a, op) not in sent:
                result.append(_pair(a, b, op, "answered what was not asked"))
        elif answer is None:
            result.append(_pair(a, b, op, "got no answer"))
        elif answer["end_ns"] < request["start_ns"]:
            result.append(_pair(a, b, op, "got its answer before it asked"))
        elif after is not None and after["start_ns"] < answer["start_ns"]:
            result.append(_pair(a, b, op, "asked again before the answer had left"))
    for (rank, _), rows in _mixes(events).group_by(["rank", "lane"], maintain_order=True):
        early = rows.filter(c("start_ns") < c("end_ns").shift(1))
        if early.height:
            words = f"rank {rank} took {early.height} means while it was taking another"
            result.append(Violation("answered", words, rank=int(str(rank))))
    return result[:MOST]


def _pair(a: int, b: int, op: int, words: str) -> Violation:
    return Violation("answered", f"rank {a} with rank {b}, message {op}: {words}", rank=a, op=op)


def _mixes(events: pl.DataFrame, lane: str = "") -> pl.DataFrame:
    rows = plain_texts(events).filter(c("kind") == "optimizer", c("name") == "mix")
    rows = rows.filter(c("lane") == lane) if lane else rows
    return rows.sort("rank", "lane", "start_ns")


def mean_kept(events: pl.DataFrame, *, within: float = 1e-6) -> list[Violation]:
    """Check that without gradients (a learning rate near 0) the replicas' mean does not move.

    ``within``: as a share of its norm. Sketches are linear, so their means are exact.
    """
    table = plain_texts(events).filter(c("kind") == "metric", c("name") == "sketch")
    means = (
        table.group_by("iteration", "chunk")
        .agg(c("value").mean())
        .sort("iteration", "chunk")
        .group_by("iteration", maintain_order=True)
        .agg(c("value"))
    )
    if not means.height:
        return [Violation("mean kept", "no replica was sketched")]
    each = np.array(means["value"].to_list())
    moved = np.linalg.norm(each - each[0], axis=1) / np.linalg.norm(each[0])
    return [
        Violation(
            "mean kept", f"after iteration {iteration + 1} the mean has moved by {by:.2e} of it"
        )
        for iteration, by in zip(means["iteration"], moved.tolist(), strict=True)
        if not by <= within
    ][:MOST]


def decays(
    events: pl.DataFrame, W: Matrix, *, every: int = 1, within: float = 0.02, floor: float = 1e-5
) -> list[Violation]:
    """Check that without gradients the disagreement shrinks from round to round as theory says.

    Each factor may differ by ``within``, once only the slowest component is left; until the
    disagreement is ``floor`` of its start, where rounding begins to show.
    """
    left = total(disagreement(events)).filter(c("iteration") % every == every - 1)["all"].to_list()
    theory = [expected_disagreement(W, n + 1) for n in range(len(left))]
    result, judged, slowest = [], 0, rate(W)
    for n in range(1, len(left)):
        if left[n] < floor * left[0] or theory[n] < 1e-12:
            break
        by, expected = left[n] / left[n - 1], theory[n] / theory[n - 1]
        if abs(expected - slowest) > within / 2:
            continue
        judged += 1
        if abs(by - expected) > within:
            words = f"round {n} left {by:.3f} of the disagreement, theory {expected:.3f}"
            result.append(Violation("decays", words, step=n))
    if not judged:
        result.append(Violation("decays", "there are too few rounds to judge it by"))
    return result[:MOST]


def total(distances: pl.DataFrame) -> pl.DataFrame:
    """Return the root of the summed squares of the replicas' distances: columns iteration, all."""
    return (
        distances.group_by("iteration").agg(all=c("distance").pow(2).sum().sqrt()).sort("iteration")
    )
