"""Meshes of ranks to begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.experiment.spec import Experiment, Link, Network

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
GROUP, ORDER = "Models over ranks", 100


def meshed(mesh: str, **options: Any) -> Experiment:
    """Return an experiment: a small transformer on four ranks, two hosts of two."""
    return Experiment(
        strategy="mesh",
        task="char_transformer",
        task_options={"layers": 2, "width": 32},
        ranks=4,
        iterations=20,
        batch_size=16,
        optimizer="adam",
        network=Network(levels=(2, 2), between=Link(latency="10 ms", bandwidth="100 Mbit/s")),
        options={"mesh": mesh, **options},
    )


def presets() -> list[Words]:
    """Return one mesh in two orders of its axes."""
    return [
        (
            "Mesh: tensor parallel within a host",
            "Which axis crosses the slow link between the hosts, and how often per iteration?",
            lambda: meshed("dp 2, tp 2"),
        ),
        (
            "Mesh: tensor parallel between hosts",
            "The same bytes, in another order of axes. How long does a rank wait for tp now?",
            lambda: meshed("tp 2, dp 2"),
        ),
    ]
