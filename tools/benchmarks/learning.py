"""Reinforcement learning: how well a network plays, how soon; frames of one actor and of four.

Scores are of 20 episodes without exploration, by the network that a run ends with. Five seeds a
figure, one run at a time. Actors' environments are padded, so that they need no core of their own.
"""

from __future__ import annotations

from statistics import median

import polars as pl

import workbench as wb
from tools.benchmarks.figures import Figure
from workbench.presets.catalogue import presets
from workbench.presets.reinforcement import catching

SEEDS = range(5)
PAD, FRAMES_FOR = "5 ms", 2000  # iterations of the runs whose frames are counted
REACHED_IN = 3000  # iterations of those that are compared by when they play well
# preset -> what it is called, the score and the seconds that are aimed at
BARS = {
    "DQN in one process": ("catch, one process", 0.9, 60.0),
    "Ape-X: four actors, one learner": ("catch, Ape-X", 0.9, 60.0),
    "Gorila: actors, learners, a server": ("catch, Gorila", 0.9, 60.0),
    "CartPole": ("CartPole, one process", 195.0, 180.0),
}


def measure(seeds: range = SEEDS) -> list[Figure]:
    """Measure all; it takes some ten minutes."""
    figures: list[Figure] = []
    for preset, (what, score, seconds) in BARS.items():
        figures += learned(presets()[preset].experiment, what, score, seconds, seeds)
    return [*figures, *frames(seeds), *sooner(seeds)]


def learned(
    exp: wb.Experiment, what: str, score: float, seconds: float, seeds: range = SEEDS
) -> list[Figure]:
    """Train with each seed. Returns the median score, and the median time that it took."""
    results = [wb.run(exp.replace(seed=seed)).wait(timeout=600) for seed in seeds]
    scores = [result.metrics["return"] for result in results]
    times = [result.wall_seconds for result in results]
    each = ", ".join(f"{one:.3g}" for one in scores)
    slowest = f"slowest {max(times):.0f} s"
    return [
        Figure(f"{what}: score", median(scores), score, "", True, each),
        Figure(f"{what}: trained in", median(times), seconds, "s", False, slowest),
    ]


def frames(seeds: range = SEEDS) -> list[Figure]:
    """Count the frames per second of padded actors, four against one."""
    speed = {}
    for actors in (1, 4):
        exp = catching("ape_x", 2 + actors, FRAMES_FOR, pull_every=40)
        each = [played(exp.replace(pad_environment=PAD, seed=seed)) for seed in seeds]
        speed[actors] = median(each)
    words = f"{speed[4]:,.0f} against {speed[1]:,.0f} a second"
    ratio = speed[4] / speed[1]
    return [Figure(f"frames of 4 actors, padded to {PAD}", ratio, 2.5, "x one's", True, words)]


def sooner(seeds: range = SEEDS) -> list[Figure]:
    """Measure the time until actors catch nearly every ball, one against four. A run in which they
    never do counts with all of its time.
    """
    options = {"pull_every": 8, "epsilon_frames": 400}
    experiments = {
        f"{actors}": catching("gorila", 3 + actors, REACHED_IN, **options).replace(
            pad_environment=PAD
        )
        for actors in (1, 4)
    }
    comparison = wb.compare(experiments, seeds=len(seeds)).wait(timeout=1800)
    whole = comparison.runs.select("name", "seed", "wall_seconds")
    table = comparison.reached(0.9).join(whole, on=["name", "seed"])
    seconds = pl.coalesce("seconds", "wall_seconds")
    one, four = (table.filter(name=name).select(seconds.median()).item() for name in ("1", "4"))
    words = f"{four:.1f} s against {one:.1f} s"
    return [Figure("4 actors, until the mean return is 0.9", one / four, 1.0, "x", True, words)]


def played(exp: wb.Experiment) -> float:
    """Return the frames per second of all actors, from their first to their last block."""
    run = wb.run(exp)
    run.wait(timeout=600)
    frames = run.events.filter(kind="metric", name="frames")
    seconds = (frames["end_ns"].max() - frames["end_ns"].min()) * 1e-9
    return float(frames.group_by("rank").agg(pl.col("value").max())["value"].sum() / seconds)
