"""Partitions to begin with: what presets/catalogue.py has of them."""

from __future__ import annotations

from collections.abc import Callable

from workbench.experiment.spec import Experiment
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
GROUP, ORDER = "Partitions", 70
SCENES = {
    "": "samples",
}


def presets() -> list[Words]:
    return [
        (
            "Samples, dealt out",
            "20 samples over 3 ranks: 7, 7 and 6. What is left for the last minibatch?",
            lambda: touched(Experiment(ranks=3, batch_size=20)),
        ),
        (
            "More ranks than samples",
            "Minibatches of 4 over six ranks: which have nothing to learn from? Does it matter?",
            lambda: Experiment(ranks=6, batch_size=4, iterations=40),
        ),
        (
            "A shuffle buffer",
            "The data set is read from front to back: how far do its 96 samples mix it?",
            lambda: Experiment(ranks=3, batch_size=24, iterations=60, shuffle_buffer=96),
        ),
        (
            "Samples of a fast worker",
            "No worker waits for another (ASP): how many minibatches is the fastest worker ahead?",
            lambda: Experiment(
                strategy="parameter_server",
                ranks=4,
                batch_size=24,
                iterations=60,
                pad_compute="8 ms",
                options={"consistency": "asp"},
            ),
        ),
    ]
