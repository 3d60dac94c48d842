"""Replicas that mix with few others, to begin with and compared: what presets/catalogue.py has of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Network, Slow
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Less communication", 50
MEASURES = {  # that decide a comparison; others: time per step
    "Which graph to gossip on": (
        "bytes_all",
        "loss_end",
    ),
    "How often to scatter": (
        "bytes_all",
        "loss_end",
    ),
}


def mixed(strategy: str = "gossip", ranks: int = 8, **options: Any) -> Experiment:
    """Return an experiment with eight ranks, on links that show the cost of a message."""
    return Experiment(
        strategy=strategy,
        ranks=ranks,
        iterations=60,
        pad_compute="20 ms",
        network=Network(latency="1 ms", bandwidth="500 Mbit/s"),
        options=options,
    )


def agreeing(strategy: str = "gossip", **options: Any) -> Experiment:
    """Return an experiment whose replicas start apart and hardly learn, to show their agreement."""
    return Experiment(
        strategy=strategy,
        ranks=8,
        iterations=40,
        lr=1e-12,
        dtype="float64",
        pad_compute="20 ms",
        options={**options, "spread": 0.1},
    )


def straggling(strategy: str, **options: Any) -> Experiment:
    """Return an experiment in which one of four ranks computes six times as long."""
    return Experiment(
        strategy=strategy,
        ranks=4,
        iterations=60,
        pad_compute="10 ms",
        faults=(Slow(rank=1, factor=6),),
        options=options,
    )


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [
        (
            "Gossip on a ring",
            "Each rank mixes with two neighbors. How far apart are they? Does the loss suffer?",
            lambda: touched(mixed()),
        ),
        (
            "Gossip with everybody",
            "Seven messages a rank each time: they agree at once. What does that cost?",
            lambda: mixed(graph="complete"),
        ),
        (
            "How fast do they agree?",
            "No learning: replicas begin apart, and each round leaves the same share of it.",
            lambda: agreeing(),
        ),
        (
            "They agree sooner",
            "The same, but each sends to those 1, 2 and 4 after it: three messages, short ways.",
            lambda: agreeing(graph="exponential"),
        ),
        (
            "Pairs, nobody waits",
            "AD-PSGD: two at a time take their mean. Rank 1 is slow, and holds up no rank.",
            lambda: straggling("ad_psgd"),
        ),
        (
            "MALT: a few peers",
            "Every 5 iterations, to four peers of seven: how many bytes less than all to all?",
            lambda: mixed("malt"),
        ),
        (
            "MALT: two worlds",
            "Peers at 4, 2 and 6: even ranks never hear of odd ones. Look at the disagreement.",
            lambda: agreeing("malt", cb=1, peers=3, scatter="parameters", wait=True),
        ),
    ]


# ---- comparisons


def comparisons() -> list[Question]:
    return [
        (
            "Which graph to gossip on",
            "Eight ranks: more edges, more bytes, replicas that agree.",
            _graphs,
        ),
        (
            "Who waits for a straggler",
            "One of four is slow: do all wait, its neighbors, or none?",
            _straggler,
        ),
        ("How often to scatter", "MALT: updates every iteration, every 5th, every 20th.", _often),
    ]


def _graphs() -> dict[str, Experiment]:
    every = mixed()
    return {
        "data parallel": every.replace(strategy="data_parallel"),
        "ring": every,
        "torus": mixed(graph="torus"),
        "exponential": mixed(graph="exponential"),
        "complete": mixed(graph="complete"),
    }


def _straggler() -> dict[str, Experiment]:
    return {
        "data parallel": straggling("data_parallel"),
        "gossip": straggling("gossip"),
        "AD-PSGD": straggling("ad_psgd"),
        "MALT": straggling("malt"),
    }


def _often() -> dict[str, Experiment]:
    return {f"every {cb}": mixed("malt", cb=cb) for cb in (1, 5, 20)}
