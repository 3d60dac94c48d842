"""Sharded runs to begin with, and compared: what presets/catalogue.py has of them.

Eight blocks of a small transformer, so that a layer is an eighth of the model, with Adam, whose two
moments are half of what an unsharded rank keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Network

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Sharded", 80
MEASURES = {  # that decide a comparison; others: time per step
    "Sharded or whole on every rank?": (
        "memory",
        "bytes_all",
    ),
}
TRANSFORMER = {"layers": 8}


def sharded(strategy: str = "fsdp", iterations: int = 40, **options: Any) -> Experiment:
    """Return an experiment with four ranks, slow links to show gathers, and memory counted."""
    return Experiment(
        strategy=strategy,
        task="char_transformer",
        task_options=TRANSFORMER,
        ranks=4,
        iterations=iterations,
        batch_size=16,
        optimizer="adam",
        memory_limit="1 GB",
        network=Network(latency="1 ms", bandwidth="400 Mbit/s"),
        options=options,
    )


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [
        (
            "FSDP: a layer at a time",
            "Each rank keeps a quarter of each layer. Which layers are whole, and for how long?",
            lambda: sharded(),
        ),
        (
            "ZeRO 1: a part of the optimizer's state",
            "All parameters on each rank, which updates a quarter of them. What does it hold?",
            lambda: sharded("zero"),
        ),
        (
            "ZeRO 2: a part of the gradients, too",
            "A layer's gradient is reduced and dropped in backward. What does that free?",
            lambda: sharded("zero", zero=2),
        ),
        (
            "FSDP: gathered ahead",
            "The next layer is gathered while this one computes. What does it cost in memory?",
            lambda: sharded(prefetch=1),
        ),
        (
            "FSDP: kept after forward",
            "Gathered once an iteration, not twice. Where does the memory curve change?",
            lambda: sharded(reshard_after_forward=False),
        ),
        (
            "FSDP: the whole model at once",
            "One unit: the parts are as small, and yet everything is whole while it computes.",
            lambda: sharded(units="whole"),
        ),
    ]


def comparisons() -> list[Question]:
    return [
        (
            "Sharded or whole on every rank?",
            "Averaged gradients keep all on each rank; ZeRO and FSDP a part: what do they send?",
            lambda: {
                "averaged gradients": sharded("data_parallel"),
                "ZeRO 1": sharded("zero"),
                "ZeRO 2": sharded("zero", zero=2),
                "FSDP": sharded(),
                "FSDP, kept after forward": sharded(reshard_after_forward=False),
                "FSDP, gathered ahead": sharded(prefetch=1),
            },
        )
    ]
