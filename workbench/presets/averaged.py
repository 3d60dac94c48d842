"""Ranks that average their gradients: rings, slow links, stragglers and faults to begin with."""

from __future__ import annotations

from collections.abc import Callable

from workbench.experiment.spec import Experiment, Jitter, Kill, Link, Network, Slow
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
GROUP, ORDER = "Averaged gradients", 10
SCENES = {
    "A straggler": "timeline",
    "Now and then slow": "timeline",
    "No overlap (padded)": "timeline",
    "Sequential, to compare": "timeline",
}


def presets() -> list[Words]:
    """Return them, the one to begin with first."""
    return [*_rings(), *_disturbed(), *_beside_the_ring()]


def _rings() -> list[Words]:
    """Return rings of several sizes, with nothing in their way."""
    return [
        (
            "Ring of four",
            "Every chunk goes round twice: first it gains a summand a hop, then the sum is shared.",
            lambda: touched(Experiment(ranks=4)),
        ),
        (
            "Two ranks",
            "The smallest ring: two chunks, two steps, and both ranks always busy.",
            lambda: touched(Experiment(ranks=2)),
        ),
        (
            "Sixteen ranks",
            "Thirty steps instead of six, yet no rank sends even twice its gradient.",
            lambda: Experiment(ranks=16, iterations=40),
        ),
    ]


def _disturbed() -> list[Words]:
    """Return rings with a slow link, slow ranks, or a rank that dies."""
    slow_link = Network(links={(0, 1): Link(latency="20 ms")})
    return [
        (
            "A slow link",
            "From rank 0 to rank 1 all takes 20 ms longer. Which ranks wait: rank 1, or all?",
            lambda: touched(Experiment(ranks=4, network=slow_link)),
        ),
        (
            "A straggler",
            "Rank 2 computes eight times as long. The others have nothing to do but wait for it.",
            lambda: touched(
                Experiment(ranks=4, pad_compute="10 ms", faults=(Slow(rank=2, factor=8),))
            ),
        ),
        (
            "Now and then slow",
            "Each rank is slow in a tenth of its iterations; together they are so far more often.",
            lambda: touched(
                Experiment(
                    ranks=4, pad_compute="10 ms", faults=(Jitter(probability=0.1, factor=6),)
                )
            ),
        ),
        (
            "A rank dies",
            "Rank 2 is killed after 40 iterations: which rank notices first? What was under way?",
            lambda: Experiment(ranks=4, iterations=100, faults=(Kill(rank=2, at_iteration=40),)),
        ),
    ]


def _beside_the_ring() -> list[Words]:
    """Return what a ring is compared with."""
    return [
        (
            "DDP with overlap (padded)",
            "Buckets travel while backward still runs: only the last one's way is exposed.",
            lambda: Experiment(
                strategy="ddp",
                ranks=4,
                iterations=60,
                pad_compute="60 ms",
                network=Network(latency="1 ms"),
                options={"bucket_cap_mb": 0.05},
            ),
        ),
        (
            "No overlap (padded)",
            "The computing and links of DDP's, but nothing travels before backward is done.",
            lambda: Experiment(
                ranks=4, iterations=60, pad_compute="60 ms", network=Network(latency="1 ms")
            ),
        ),
        (
            "All through rank 0",
            "The obvious way: all ranks send to rank 0. Compare its bytes with those of the ring.",
            lambda: Experiment(ranks=4, iterations=200, all_reduce="naive"),
        ),
        (
            "Sequential, to compare",
            "One process, the whole minibatch, nothing to send: the same losses, in what time?",
            lambda: Experiment(strategy="sequential", ranks=1, iterations=200),
        ),
    ]
