"""Bottlenecks: what a run's time was spent on, what cost most, and what would help.

``find`` says it in a sentence and a piece of advice. The parts are those of time_spent.py. Of what
costs most beside computing, one rank, one link or one server is named if most of it is its doing.
What costs much too is said second: a machine with few cores does not hide a slow link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import Any

import polars as pl

from workbench.analysis.arrivals import MOST, arrivals, spoken
from workbench.analysis.servers import serves
from workbench.analysis.time_spent import PARTS, TimeSpent, rows_of
from workbench.common.names import enumerated
from workbench.common.units import bytes_per_second, counted, duration_ns, print_size
from workbench.experiment.stored import settings
from workbench.experiment.traits import stored_traits

LITTLE = 0.15  # of the time: what costs less is not a bottleneck
MAIN = 0.5  # of a part: whose doing so much is, is named
TIMES = 1.4  # so many times the others' computing makes a straggler
COVERED = 0.6  # of the time: where less is known of it, nothing is advised
SMALL = 16_384  # bytes: what a message costs is its latency


@dataclass(frozen=True)
class Bottleneck:
    """``shares`` of PARTS add up to 1. ``cause``: "straggler", "turns", "bubble", "stage",
    "server", "slow link", "latency", "bandwidth", "card", "data", "cores", "compute" where nothing
    else costs much, "unfinished" (calls), "unknown" where most of the time is. ``rank``, ``peer``:
    whose doing it is, -1: of none; ``ranks``: all of them, where several are as slow.
    """

    shares: Mapping[str, float]
    cause: str
    words: str  # what cost most, in a sentence
    advice: str  # what would help
    rank: int = -1
    peer: int = -1
    also: Bottleneck | None = None  # the next largest cost, where it is large too
    ranks: tuple[int, ...] = ()

    def for_page(self) -> dict[str, Any]:
        """Return what a page is told."""
        shares = {name: round(share, 4) for name, share in self.shares.items()}
        also = {"also": self.also.words} if self.also else {}
        own = {"cause": self.cause, "words": self.words, "advice": self.advice}
        return {"shares": shares, **own, **also}

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return f"<{parts}. {self.words} {self.advice}>"


def find(events: pl.DataFrame | pl.LazyFrame, metadata: Mapping[str, str]) -> Bottleneck | None:
    """Return the bottleneck of a run; None where fewer than two ranks
    train, or nothing was recorded of it.

    In an attached job, the ranks that call each other train.
    """
    spent = TimeSpent(rows_of(events.lazy()), metadata)
    ours = "cells" in metadata or settings(metadata)
    return None if ours and not spent.computes else of(spent, metadata)


def of(spent: TimeSpent, metadata: Mapping[str, str]) -> Bottleneck | None:
    """Return the bottleneck of this time."""
    total = sum(spent.parts.values())
    if len(spent.trainers) < 2 or total <= 0:
        return None
    shares = {name: spent.parts[name] / total for name in PARTS}
    verdict = _Verdict(spent, settings(metadata), int(metadata.get("cores", 0) or 0), shares)
    says = {
        "wait": verdict.waiting,
        "link": verdict.moving,
        "core": verdict.crowded,
        "data": verdict.loading,
    }
    much = sorted((name for name in says if shares[name] >= LITTLE), key=lambda n: -shares[n])
    if not much:
        return verdict.computing()
    first, *others = (says[name]() for name in much[:2])
    first = replace(first, also=others[0]) if others else first
    return first if verdict.covered else replace(first, advice="")


@dataclass(frozen=True)
class _Verdict:
    """Words on a part of the time."""

    spent: TimeSpent
    spec: Mapping[str, Any]
    cores: int
    shares: Mapping[str, float]

    def _say(
        self, cause: str, words: str, advice: str, rank: int = -1, peer: int = -1
    ) -> Bottleneck:
        return Bottleneck(self.shares, cause, words, advice, rank, peer)

    def _percent(self, part: str) -> str:
        return f"{self.shares[part]:.0%} of the time"

    @property
    def covered(self) -> bool:
        """Whether enough of the time is known for advice."""
        return 1 - self.shares["other"] >= COVERED

    def computing(self) -> Bottleneck:
        if not self.covered:
            rest, inside = self._percent("other"), 1 - self.shares["compute"] - self.shares["other"]
            words = (
                f"Ranks compute {self.shares['compute']:.0%} of the time and communicate "
                f"{inside:.0%}; of {rest} nothing was recorded."
                if self.spent.computes
                else f"Ranks are in calls {inside:.0%} of the time; what they did outside of calls "
                "was not recorded."
            )
            return self._say("unknown", words, "")
        words = f"Ranks compute {self._percent('compute')}, and nothing else costs much."
        return self._say("compute", words, "To be faster, divide the work over more ranks.")

    def crowded(self) -> Bottleneck:
        ranks = counted(len({*self.spent.rows["rank"].to_list()}), "rank")
        where = f" on {counted(self.cores, 'core')}" if self.cores else ""
        words = f"Ranks wait for a core {self._percent('core')}: {ranks} run{where}."
        return self._say("cores", words, "Run fewer ranks here, or take a machine with more cores.")

    def loading(self) -> Bottleneck:
        words = f"Ranks wait for their samples {self._percent('data')}."
        advice = "Load the next minibatch while ranks compute, or from a faster source."
        return self._say("data", words, advice)

    # ---- waiting

    def waiting(self) -> Bottleneck:
        """Name the rank that is waited for most a straggler, if it computes longer than others."""
        waits, often = self.spent.waits, self._percent("wait")
        rank, most = waits.most_common(1)[0]
        main = most >= MAIN * sum(waits.values())
        if not self.spent.computes:
            return self._arriving(rank if main else -1, often) or self._unclear(often)
        times = self._times(rank)
        others = len(self.spent.trainers) - 1
        if main and (still := self._frozen_ns(rank)) * others >= MAIN * most:
            words = (
                f"The others wait for rank {rank} {often}: it was frozen for {still * 1e-9:.3g} s."
            )
            advice = "Let the others go on without a rank that stands: SSP, gossip, recovery."
            return self._say("straggler", words, advice, rank)
        if main and rank not in self.spent.trainers:
            words = f"Workers wait for server {rank} {often}: it applies one update after another."
            return self._say("server", words, "Take more servers: each then holds less.", rank)
        if stored_traits(self.spec.get("strategy")).messages == "stages":
            return self._pipeline(rank, main, times, often)
        own = self.spent.compute_of(self.spent.trainers)
        usual = median_low(own.values()) if own else 0.0  # of two the faster one
        slow = sorted(one for one, ns in own.items() if usual and ns >= TIMES * usual)
        if sum(waits[one] for one in slow) >= MAIN * sum(waits.values()):
            return self._stragglers(slow, own, often)
        if main and (late := self._arriving(rank, often)):
            return late  # by something that was not recorded
        words = f"Ranks wait for each other {often}: in every iteration another one is slowest."
        advice = "Let them meet less often (local SGD), or within a bound (SSP)."
        return self._say("turns", words, advice)

    def _stragglers(self, slow: Sequence[int], own: Mapping[int, float], often: str) -> Bottleneck:
        """Name the ranks that compute much longer than most do. ``own``: ns of each."""
        usual = median(ns for rank, ns in own.items() if rank not in slow)
        times = median(own[rank] for rank in slow) / usual
        first = max(slow, key=lambda one: self.spent.waits[one])
        named, does = (
            (f"rank {first}", "it computes")
            if len(slow) == 1
            else (f"ranks {enumerated(map(str, slow))}", "they compute")
        )
        words = f"The others wait for {named} {often}: {does} {times:.1f} times as long."
        give = "it" if len(slow) == 1 else "them"
        advice = (
            f"Give {give} a smaller share of the minibatch, or let the others go on without "
            f"{give}: SSP, local SGD, gossip."
        )
        return replace(self._say("straggler", words, advice, first), ranks=tuple(slow))

    def _arriving(self, rank: int, often: str) -> Bottleneck | None:
        """Name a rank that comes late to calls by its own doing; None if that is not why ranks
        wait.
        """
        p = pl.col
        table = arrivals(self.spent.rows)
        late = table.filter(p("last") == rank, p("own_ms") >= MOST * p("late_ms"))
        others = late.select((p("late_ms") * (p("ranks") - 1)).sum()).item()
        waited_for = float(others) * 1e6  # by all the others
        if not late.height or waited_for < MAIN * self.spent.waits[rank]:
            return None
        what, line, _ = late.group_by("collective", "name").len().sort("len").row(-1)
        same = table.filter(collective=what, name=line)
        last = same.filter(last=rank)
        each = f"{float(last['late_ms'].median() or 0):.3g} ms"  # type: ignore[arg-type]
        where = f" at {line}" if line else ""
        words = (
            f"Rank {rank} arrives last in {last.height:,} of {counted(same.height, spoken(what))}"
            f"{where}, {each} each: the others wait for it {often}."
        )
        advice = f"See what rank {rank} does between its calls, which the others do not."
        return self._say("straggler", words, advice, rank)

    def _unclear(self, often: str) -> Bottleneck:
        """Say that ranks of a job wait, where no rank is the reason."""
        if self.spent.unfinished:
            words = f"Ranks wait {often}, most of it in calls that were never completed."
            return self._say("unfinished", words, "")
        words = f"Ranks wait for each other {often}: in every call another one comes last."
        advice = "Look at the calls: run.calls() says which rank came last."
        return self._say("turns", words, advice)

    def _frozen_ns(self, rank: int) -> int:
        """Return how long a rank was frozen while the ranks trained."""
        begin = min(begin for begin, _ in self.spent.spans.values())
        last = max(end for _, end in self.spent.spans.values())
        spans = self.spent.frozen.get(rank, ())
        return sum(max(0, min(end, last) - max(start, begin)) for start, end in spans)

    def _times(self, rank: int) -> float:
        """Return how many times as long as the other trainers a rank computes; 0 unknown."""
        own = self.spent.compute_of(self.spent.trainers)
        others = [ns for other, ns in own.items() if other != rank]
        return own.get(rank, 0.0) / median(others) if others and median(others) else 0.0

    def _pipeline(self, rank: int, main: bool, times: float, often: str) -> Bottleneck:
        if main and times >= 1 + (TIMES - 1) / 2:
            words = (
                f"Stages wait for that of rank {rank} {often}: it computes {times:.1f} times as "
                "long as they do."
            )
            return self._say("stage", words, "Cut the model elsewhere: stages of equal time.", rank)
        words = f"Stages wait {often} for microbatches that others still compute: the bubble."
        advice = "Take more microbatches, or a schedule with a smaller bubble."
        return self._say("bubble", words, advice)

    # ---- links

    def moving(self) -> Bottleneck:
        """Name the link or the server that holds up all; else say if messages are many or large."""
        links, often = self.spent.links, self._percent("link")
        total = sum(links.values())
        if (server := self._server()) is not None:
            words = f"Bytes are on their way {often}, most of them to and from server {server}."
            return self._say("server", words, "Take more servers: each then moves less.", server)
        if (card := self._card(often)) is not None:
            return card
        (source, target), most = links.most_common(1)[0] if links else ((-1, -1), 0.0)
        if len(links) > 2 and most >= MAIN * total:
            words = (
                f"Ranks wait {often} for what is on its way from rank {source} to rank {target}."
            )
            advice = f"Mend the link {source} → {target}, or order ranks so that less crosses it."
            return self._say("slow link", words, advice, source, target)
        return self._messages(often)

    def _card(self, often: str) -> Bottleneck | None:
        """Name the network cards, if hosts have one each and most bytes go from host to host."""
        network = self.spec.get("network") or {}
        width, (each, *_) = network.get("nic", ""), network.get("levels") or [1]
        if width in ("", "unlimited"):
            return None
        links = self.spent.links
        between = sum(ns for (a, b), ns in links.items() if a // each != b // each)
        if between < MAIN * sum(links.values()):
            return None
        words = (
            f"Bytes are on their way {often}, most of them between hosts, whose ranks share a "
            f"card of {width}."
        )
        advice = "Send fewer bytes between hosts: add up within each host first."
        return self._say("card", words, advice)

    def _server(self) -> int | None:
        """Return the server that takes part in most of the moving."""
        servers = {rank for way in self.spent.links for rank in way} - {*self.spent.trainers}
        if not serves(self.spec) or not servers:
            return None
        of = {
            server: sum(ns for way, ns in self.spent.links.items() if server in way)
            for server in servers
        }
        server = max(of, key=lambda one: of[one])
        return server if of[server] >= MAIN * sum(self.spent.links.values()) else None

    def _messages(self, often: str) -> Bottleneck:
        p = pl.col
        sends = self.spent.rows.filter((p("kind") == "send") & p("rank").is_in(self.spent.trainers))
        count = sends.height / max(1, sends.select("rank", "iteration").n_unique())
        nbytes = float(sends["nbytes"].clip(0).mean() or 0)  # type: ignore[arg-type]
        size = print_size(round(float(f"{nbytes:.3g}")))
        facts = f"{count:,.0f} messages of {size} per rank and iteration"
        words = f"Bytes are on their way {often}: {facts}."
        if self._latency_counts(nbytes):
            advice = "Send fewer, larger messages: larger buckets, tensors fused."
            return self._say("latency", words, advice)
        advice = (
            "Send fewer bytes (compression, local SGD), or send them while backward computes (DDP)."
        )
        return self._say("bandwidth", words, advice)

    def _latency_counts(self, nbytes: float) -> bool:
        """Return whether a message costs more for being one than for its bytes."""
        network = self.spec.get("network") or {}
        try:
            latency = duration_ns(network["latency"]) if network.get("latency") else 0
            width = bytes_per_second(network["bandwidth"]) if network.get("bandwidth") else 0.0
        except (TypeError, ValueError):  # another version's
            latency, width = 0, 0.0
        if latency and not width:
            return True
        if width:
            return latency > nbytes / width * 1e9
        return nbytes < SMALL
