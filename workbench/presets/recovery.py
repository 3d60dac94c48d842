"""Presets for recovery, which presets/catalogue.py lists: ranks are lost, and training goes on.

Computing is padded, so that a recovery is seen beside iterations of a known length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.checkpoint import Checkpoint
from workbench.experiment.scenario import Scenario
from workbench.experiment.spec import (
    Corrupt,
    Experiment,
    Freeze,
    Join,
    Kill,
    Link,
    Network,
    NetworkPartition,
    Preempt,
    SourceDown,
)
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Recovery", 25
MEASURES = {  # that decide a comparison; others: time per step
    "Go on with fewer, or replace?": ("wall_seconds",),
}


def healing(recovery: str, **fields: Any) -> Experiment:
    """Return an experiment of four ranks that goes on without one, or with another in its place."""
    base = {"ranks": 4, "iterations": 300, "batch_size": 48, "pad_compute": "10 ms"}
    return Experiment(recovery=recovery, **{**base, **fields})


def behind_slow_links(ranks: int, *slow: int, **fields: Any) -> Experiment:
    """Return an experiment in which each message of these ranks takes longer than ranks wait."""
    link = Link(latency="600 ms")
    links = {(a, b): link for a in slow for b in range(ranks) if b != a}
    fields = {"quorum_timeout": "0.5 s", "network": Network(links=links), **fields}
    return healing("quorum", ranks=ranks, **fields)


def presets() -> list[Words]:
    """Return the presets."""
    return [*_lost(), *_disturbed()]


def _disturbed() -> list[Words]:
    """Return presets in which no rank ends: data, links and chance."""
    return [
        (
            "A corrupt minibatch ends the run",
            "One sample of rank 1 holds a NaN. Which rank names it, and why do all ranks end?",
            lambda: healing(
                "abort", bad_minibatch="fail", faults=(Corrupt(rank=1, at_iteration=40),)
            ),
        ),
        (
            "A corrupt minibatch is skipped",
            "All ranks leave out the minibatch of rank 1's NaN. Whose samples are lost with it?",
            lambda: healing(
                "abort", bad_minibatch="skip", faults=(Corrupt(rank=1, at_iteration=40),)
            ),
        ),
        (
            "The data set goes away",
            "Reading becomes slow, then stops for 3 s. All save what they have, wait and go on.",
            lambda: healing(
                "shrink",
                iterations=120,
                checkpoint=Checkpoint(folder="runs/checkpoints", every=0),
                faults=(SourceDown(at_iteration=40, seconds=3),),
            ),
        ),
        (
            "Two of three behind slow links",
            "All three are in the all-reduce, and two send too slowly. How many ranks go on?",
            lambda: behind_slow_links(3, 1, 2),
        ),
        (
            "Two of five behind slow links",
            "Ranks 1 and 3 send too slowly. Do the other three go on, and when do two come back?",
            lambda: touched(behind_slow_links(5, 1, 3)),
        ),
        (
            "A network falls apart",
            "Rank 3 is cut off from the others for 3 s. Which ranks go on, and with what?",
            lambda: healing(
                "wait",
                timeout="1 s",
                faults=(NetworkPartition(ranks=(3,), at_iteration=40, seconds=3),),
            ),
        ),
        (
            "Faults by chance",
            "Kills, slow ranks and NaNs, drawn from a seed. Which of them cost an iteration?",
            lambda: Scenario(
                rates={"kill": 0.01, "join": 0.01, "slow": 0.02, "corrupt": 0.01}, seed=7
            ).on(healing("shrink", ranks=(2, 4), bad_minibatch="skip")),
        ),
    ]


def _lost() -> list[Words]:
    """Return presets in which ranks end, freeze or leave."""
    return [
        (
            "A rank dies, the others go on",
            "Three ranks close the ring and take the fourth's samples. How long does that take?",
            lambda: healing("shrink", faults=(Kill(rank=2, at_iteration=40),)),
        ),
        (
            "A rank dies, another takes its place",
            "A new process gets parameters and optimizer from a survivor. From which, and when?",
            lambda: touched(healing("replace", faults=(Kill(rank=2, at_iteration=40),))),
        ),
        (
            "A late rank is left out",
            "Rank 1 is frozen for two seconds. The others agree to go on, and take it back later.",
            lambda: healing(
                "quorum",
                quorum_timeout="0.5 s",
                faults=(Freeze(rank=1, at_iteration=40, seconds=2),),
            ),
        ),
        (
            "Ranks that come and go",
            "Rank 3 joins after 30 iterations, rank 1 leaves after 80. Which trains on what?",
            lambda: healing(
                "shrink",
                ranks=(2, 4),
                faults=(Join(rank=3, at_iteration=30), Preempt(rank=1, at_iteration=80)),
            ),
        ),
        (
            "A server dies, its replica takes over",
            "Each push is in two places. Which updates does the new owner of the keys lack?",
            lambda: Experiment(
                strategy="parameter_server",
                ranks=5,
                iterations=250,
                batch_size=48,
                pad_compute="10 ms",
                recovery="shrink",
                options={"servers": 2, "replicas": 2},
                faults=(Kill(rank=1, at_iteration=40),),
            ),
        ),
    ]


def comparisons() -> list[Question]:
    """Return the comparisons."""
    dies = (Kill(rank=2, at_iteration=40),)
    return [
        (
            "Go on with fewer, or replace?",
            "One rank of four dies. What does each policy cost then, and what at the end?",
            lambda: {
                "nothing fails": healing("shrink"),
                "shrink": healing("shrink", faults=dies),
                "replace": healing("replace", faults=dies),
            },
        )
    ]
