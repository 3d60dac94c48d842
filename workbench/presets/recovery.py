"""Presets for recovery, which presets/catalogue.py lists: ranks are lost, and training goes on.

Computing is padded, so that a recovery is seen beside iterations of a known length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Freeze, Join, Kill, Preempt
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


def presets() -> list[Words]:
    """Return the presets."""
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
