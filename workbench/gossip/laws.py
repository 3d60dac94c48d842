"""What must hold of a run in which replicas mix, read from its event table and what is told of it.

``peers``: what ``run.peers`` of the header says (facts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.contributors import plain_texts
from workbench.gossip.disagreement import disagreement
from workbench.gossip.graphs import Matrix
from workbench.gossip.theory import expected_disagreement, rate
from workbench.laws import MOST, Violation
from workbench.units import counted

__all__ = ["along_edges", "answered", "decays", "mean_kept", "once_a_round"]

WORDS = ("parameters", "update")  # the names of what replicas send
c = pl.col


def messages(events: pl.DataFrame) -> pl.DataFrame:
    """rank, peer, op, iteration, nbytes, start_ns, end_ns of each message that replicas sent."""
    sent = plain_texts(events).filter(
        c("kind") == "send", c("collective") == "p2p", c("name").is_in(WORDS)
    )
    return (
        sent.group_by("rank", "peer", "op")
        .agg(
            c("iteration").min(), c("nbytes").sum(), c("start_ns").min(), c("end_ns").max(),
        )
        .sort("rank", "peer", "op")
    )  # fmt: skip


def along_edges(events: pl.DataFrame, peers: Mapping[str, Any]) -> list[Violation]:
    """Parameters and updates travel along the graph's edges and nowhere else."""
    edges = {(a, b) for a, b, _ in peers["edges"]}
    found = messages(events).group_by("rank", "peer").len("times").sort("rank", "peer")
    return [
        Violation(
            "along edges",
            f"rank {row['rank']} sent {counted(row['times'], 'message')} to rank {row['peer']}, "
            "which is no peer of its",
            rank=row["rank"],
        )
        for row in found.iter_rows(named=True)
        if (row["rank"], row["peer"]) not in edges
    ][:MOST]


def once_a_round(
    events: pl.DataFrame, peers: Mapping[str, Any], iterations: int
) -> list[Violation]:
    """Where replicas go in step, each edge carries one message a round, and no other."""
    every = peers["every"]
    rounds = set(range(every - 1, iterations, every))
    carried: dict[tuple[int, int], list[int]] = {}
    for row in messages(events).iter_rows(named=True):
        carried.setdefault((row["rank"], row["peer"]), []).append(row["iteration"])
    return [
        Violation(
            "once a round",
            f"rank {a} sent to rank {b} in iterations {found[:8]}, not once in each of "
            f"{sorted(rounds)[:8]}",
            rank=a,
        )
        for a, b, _ in peers["edges"]
        if sorted(found := carried.get((a, b), [])) != sorted(rounds)
    ][:MOST]


def answered(events: pl.DataFrame, peers: Mapping[str, Any]) -> list[Violation]:
    """Of pairs: every request got one answer, which left after it had begun to come, and before
    the next request of the same rank; and the means that a rank takes never overlap.
    """
    sent = {
        (row["rank"], row["peer"], row["op"]): row for row in messages(events).iter_rows(named=True)
    }
    asks = {row["rank"] for row in _mixes(events, "compute").iter_rows(named=True)}
    found = []
    for (a, b, op), request in sent.items():
        answer, after = sent.get((b, a, op)), sent.get((a, b, op + 1))
        if a not in asks:
            if (b, a, op) not in sent:
                found.append(_pair(a, b, op, "answered what was not asked"))
        elif answer is None:
            found.append(_pair(a, b, op, "got no answer"))
        elif answer["end_ns"] < request["start_ns"]:
            found.append(_pair(a, b, op, "got its answer before it asked"))
        elif after is not None and after["start_ns"] < answer["start_ns"]:
            found.append(_pair(a, b, op, "asked again before the answer had left"))
    for (rank, _), rows in _mixes(events).group_by(["rank", "lane"], maintain_order=True):
        early = rows.filter(c("start_ns") < c("end_ns").shift(1))
        if early.height:
            words = f"rank {rank} took {early.height} means while it was taking another"
            found.append(Violation("answered", words, rank=int(str(rank))))
    return found[:MOST]


def _pair(a: int, b: int, op: int, words: str) -> Violation:
    return Violation("answered", f"rank {a} with rank {b}, message {op}: {words}", rank=a, op=op)


def _mixes(events: pl.DataFrame, lane: str = "") -> pl.DataFrame:
    rows = plain_texts(events).filter(c("kind") == "optimizer", c("name") == "mix")
    rows = rows.filter(c("lane") == lane) if lane else rows
    return rows.sort("rank", "lane", "start_ns")


def mean_kept(events: pl.DataFrame, *, within: float = 1e-6) -> list[Violation]:
    """Without gradients (a learning rate near 0) the mean of all replicas stays where it was, to
    this share of its length. Sketches are linear, so that their means are exact.
    """
    told = plain_texts(events).filter(c("kind") == "metric", c("name") == "sketch")
    means = (
        told.group_by("iteration", "chunk").agg(c("value").mean()).sort("iteration", "chunk")
        .group_by("iteration", maintain_order=True).agg(c("value"))
    )  # fmt: skip
    if not means.height:
        return [Violation("mean kept", "no replica was sketched")]
    each = np.array(means["value"].to_list())
    moved = np.linalg.norm(each - each[0], axis=1) / np.linalg.norm(each[0])
    return [
        Violation("mean kept", f"after iteration {iteration} the mean has moved by {by:.2e} of it")
        for iteration, by in zip(means["iteration"], moved.tolist(), strict=True)
        if not by <= within
    ][:MOST]


def decays(
    events: pl.DataFrame, W: Matrix, *, every: int = 1, within: float = 0.02, floor: float = 1e-5
) -> list[Violation]:
    """Without gradients, what replicas differ by shrinks as theory says: from each round to the
    next by the factor of theory, give or take ``within``, once the slowest part is all that is
    left; until it is ``floor`` of what it was, where rounding begins to show.
    """
    left = total(disagreement(events)).filter(c("iteration") % every == every - 1)["all"].to_list()
    theory = [expected_disagreement(W, n + 1) for n in range(len(left))]
    found, judged, slowest = [], 0, rate(W)
    for n in range(1, len(left)):
        if left[n] < floor * left[0] or theory[n] < 1e-12:
            break
        by, expected = left[n] / left[n - 1], theory[n] / theory[n - 1]
        if abs(expected - slowest) > within / 2:
            continue
        judged += 1
        if abs(by - expected) > within:
            words = f"round {n} left {by:.3f} of the disagreement, theory {expected:.3f}"
            found.append(Violation("decays", words, step=n))
    if not judged:
        found.append(Violation("decays", "there are too few rounds to judge it by"))
    return found[:MOST]


def total(distances: pl.DataFrame) -> pl.DataFrame:
    """iteration, all: the root of the summed squares of the replicas' distances."""
    return (
        distances.group_by("iteration").agg(all=c("distance").pow(2).sum().sqrt()).sort("iteration")
    )
