"""Presets for reinforcement learning, which presets/catalogue.py lists.

Environments are padded, so that actors are what takes time, as they are with larger games.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Kill

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Reinforcement learning", 80
MEASURES = {  # that decide a comparison; others: time per step
    "Gorila, Ape-X and one process": (
        "return_end",
        "wall_seconds",
    ),
}
PULL_EVERY = 200  # frames
SCENES = {
    "": "reinforcement",
    "DQN in one process": "timeline",
    "CartPole": "overview",
}


def catching(strategy: str, ranks: int, iterations: int = 1500, **options: Any) -> Experiment:
    """Return an experiment on the pixel game; options with their default value are left out.

    Actors pull parameters every 200 frames, in Ape-X and in Gorila alike (in Ape-X's paper every
    400): with up to 20 frames of all actors per update, Ape-X then sends less than a tenth of
    Gorila's bytes of parameters and gradients.
    """
    if strategy != "sequential" and not options.get("bundle"):  # a bundle pulls for each update
        options = options | {"pull_every": options.get("pull_every", PULL_EVERY)}
    return Experiment(
        strategy=strategy,
        task="catch",
        ranks=ranks,
        iterations=iterations,
        batch_size=32,
        optimizer="adam",
        threads=1,  # the network is small: threads would only wait for each other
        pad_environment="2 ms",
        options=options,
    )


def balancing(iterations: int = 10_000) -> Experiment:
    """Return DQN on CartPole, with what it takes to learn that steadily: a replay that forgets no
    early fall, larger minibatches, a wider network, and little exploration in the end.
    """
    return Experiment(
        strategy="sequential",
        task="gymnasium_game",
        task_options={"hidden": [128, 128]},
        ranks=1,
        iterations=iterations,
        batch_size=128,
        optimizer="adam",
        threads=1,
        options={"capacity": 50_000, "epsilon": 0.02, "epsilon_frames": 3_000},
    )


def investing(ranks: int, iterations: int = 1500) -> Experiment:
    """Return Ape-X on the portfolio: a learner, replay, and all other ranks are actors."""
    return catching("ape_x", ranks, iterations).replace(task="portfolio", lr=3e-3)


def presets() -> list[Words]:
    """Return the presets."""
    return [
        (
            "DQN in one process",
            "It plays, remembers and learns in turns. What of the time goes to playing?",
            lambda: catching("sequential", 1),
        ),
        (
            "Ape-X: four actors, one learner",
            "Experience flows to replay, priorities come back. How old is what is learned from?",
            lambda: catching("ape_x", 6, 3000),
        ),
        (
            "Gorila: actors, learners, a server",
            "Two learners push gradients to a server. Which kind of message has most bytes?",
            lambda: catching("gorila", 6, learners=2),
        ),
        (
            "Gorila in bundles",
            "Each of three ranks plays, remembers and learns. Which messages are gone?",
            lambda: catching("gorila", 4, bundle=True),
        ),
        (
            "A portfolio, four actors",
            "No labels, only gains and losses of ten states: how many days do four actors play?",
            lambda: investing(6),
        ),
        (
            "CartPole",
            "A pole is balanced for up to 500 frames. After how many frames is it for 195 of them?",
            balancing,
        ),
        (
            "Gorila: a server that dies",
            "Each parameter is on two servers. Rank 0 is killed: where are its parameters now?",
            lambda: catching("gorila", 6, servers=2, replicas=2).replace(
                recovery="replace", faults=(Kill(rank=0, at_iteration=300),)
            ),
        ),
        (
            "An actor that dies",
            "Rank 5 is killed after 300 updates. Training goes on: how many frames per second?",
            lambda: catching("ape_x", 6).replace(faults=(Kill(rank=5, at_iteration=300),)),
        ),
    ]


def comparisons() -> list[Question]:
    """Return the comparisons."""
    return [
        (
            "Gorila, Ape-X and one process",
            "Which is ahead by updates, which by wall time, and which sends fewest bytes?",
            lambda: {
                "sequential": catching("sequential", 1),
                "Ape-X": catching("ape_x", 5),
                "Gorila": catching("gorila", 5),
            },
        )
    ]
