"""Presets of Elephas: its modes and frequencies on the same partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Jitter

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Elephas", 92
MEASURES = {  # that decide a comparison; others: time per step
    "Elephas's six ways": (
        "loss_end",
        "wall_seconds",
    ),
}
MODES = "synchronous", "asynchronous", "hogwild"


def partitions(**options: Any) -> Experiment:
    """Return an experiment with three workers, each with its partition, that are slow at times: an
    epoch is 30 iterations.
    """
    return Experiment(
        strategy="elephas",
        ranks=4,
        iterations=90,
        batch_size=48,
        pad_compute="5 ms",
        faults=(Jitter(probability=0.1, factor=6),),
        options=options,
    )


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [
        (
            "Elephas: once per epoch",
            "Each worker trains its partition for an epoch, then pushes. How far do they drift?",
            lambda: partitions(),
        ),
        (
            "Elephas: synchronous",
            "The mean of three partitions' differences, once per epoch: which ranks wait?",
            lambda: partitions(mode="synchronous"),
        ),
        (
            "Elephas: hogwild",
            "Pushes after each minibatch, subtracted at the same time and without a lock.",
            lambda: partitions(mode="hogwild", frequency="batch"),
        ),
    ]


def comparisons() -> list[Question]:
    return [
        (
            "Elephas's six ways",
            "Three modes, per epoch or per minibatch: loss, wall time, and bytes.",
            lambda: {
                f"{mode}, {frequency}": partitions(mode=mode, frequency=frequency)
                for mode in MODES
                for frequency in ("epoch", "batch")
            },
        )
    ]
