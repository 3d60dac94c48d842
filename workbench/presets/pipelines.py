"""Pipelines to begin with, and pipelines compared: what presets/catalogue.py has of them.

Times of stages are padded, so that a schedule shows as it is on any machine: 20 ms for each forward
(F), input gradient (I) and weight gradient (W) of a microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Network, Pads, Slow
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Models over ranks", 100
MEASURES = {  # that decide a comparison; others: time per step
    "Schedules of a pipeline": (
        "bubble",
        "activations",
    ),
    "Microbatches": ("bubble",),
}
SCENES = {
    "Pipeline of convolutions": "model",
    "Too large for one rank": "overview",
    "Split, it fits": "model",
    "Inside the layers": "model",
    "Inside, the sequence too": "model",
}
TRANSFORMER = {"layers": 8}  # so that eight stages have a layer each


def piped(ranks: int = 4, iterations: int = 20, **options: Any) -> Experiment:
    """Return an experiment: eight microbatches through a small transformer in ``ranks`` stages."""
    return Experiment(
        strategy="pipeline",
        task="char_transformer",
        task_options=TRANSFORMER,
        ranks=ranks,
        iterations=iterations,
        batch_size=32,
        optimizer="adam",
        pad_compute="20 ms",
        options=options,
    )


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [*_by_schedule(), *_by_times(), *_over_ranks()]


def _by_schedule() -> list[Words]:
    """Return one pipeline under each schedule."""
    return [
        (
            "Pipeline: 1F1B",
            "Four stages, eight microbatches: stage 0 holds four at a time, stage 3 only one.",
            lambda: touched(piped()),
        ),
        (
            "Pipeline: one at a time",
            "The model is split and that is all: three of four stages idle. Why have a pipeline?",
            lambda: piped(schedule="sequential", iterations=8),
        ),
        (
            "Pipeline: GPipe",
            "As fast as 1F1B. But how many microbatches' activations does the first stage hold?",
            lambda: piped(schedule="gpipe"),
        ),
        (
            "Pipeline: interleaved 1F1B",
            "Two stages a rank: half the time to fill the pipeline, twice the bytes between ranks.",
            lambda: piped(schedule="interleaved_1f1b", stages_per_rank=2, iterations=12),
        ),
        (
            "Pipeline: zero bubble",
            "Backward in two halves: weight gradients wait until there is nothing else to do.",
            lambda: piped(schedule="zb_h1"),
        ),
        (
            "Pipeline: PipeDream",
            "No flush, so no bubble after the start. Whose parameters does a microbatch see?",
            lambda: piped(schedule="pipedream"),
        ),
    ]


def _by_times() -> list[Words]:
    """Return the pipeline with other times of stages and links."""
    return [
        (
            "Pipeline: a slow stage",
            "Rank 2 computes half as long again. The others idle, but not for the schedule's sake.",
            lambda: piped().replace(faults=(Slow(rank=2, factor=1.5),)),
        ),
        (
            "Pipeline: slow links",
            "Every activation and gradient takes 5 ms: which ranks wait for them, and how often?",
            lambda: piped().replace(network=Network(latency="5 ms")),
        ),
        (
            "Pipeline: backward is longer",
            "Forward 10 ms, gradients 20 and 10 ms: the times that books draw pipelines with.",
            lambda: piped().replace(
                pad_compute=Pads(forward="10 ms", input_gradient="20 ms", weight_gradient="10 ms")
            ),
        ),
        (
            "Pipeline: as it is",
            "Nothing is padded: what is left of the schedule on this machine's cores?",
            lambda: piped(iterations=60).replace(pad_compute=None),
        ),
    ]


def _over_ranks() -> list[Words]:
    """Return other ways to spread a model over ranks."""
    return [
        (
            "Pipeline of convolutions",
            "LeNet-5 in two stages: its layers are uneven, so where is it cut?",
            lambda: Experiment(
                strategy="pipeline", ranks=2, iterations=100, options={"microbatches": 4}
            ),
        ),
        (
            "Data × pipeline",
            "Eight ranks: two replicas of a pipeline of four, whose gradients are averaged.",
            lambda: piped(ranks=8, replicas=2, iterations=12),
        ),
        (
            "Too large for one rank",
            "A rank may hold 64 MB and the model needs more: one process is stopped by the limit.",
            lambda: limited().replace(strategy="sequential", ranks=1, options={}),
        ),
        (
            "Split, it fits",
            "The same model and the same limit, in four stages: compare what each rank holds.",
            lambda: limited(),
        ),
        (
            "Inside the layers",
            "Every layer is cut over four ranks: how many bytes, against a pipeline's?",
            lambda: sharded(),
        ),
        (
            "Inside, the sequence too",
            "What lies between split layers is cut by tokens: the same bytes, less memory.",
            lambda: sharded(sequence_parallel=True),
        ),
    ]


def sharded(**options: Any) -> Experiment:
    """Return the same transformer with each of its layers over four ranks."""
    return Experiment(
        strategy="tensor_parallel",
        task="char_transformer",
        task_options={"layers": 2},
        ranks=4,
        iterations=40,
        batch_size=32,
        optimizer="adam",
        options=options,
    )


def limited() -> Experiment:
    """Return a model whose parameters, gradients and Adam's averages, 100 MB, exceed one rank."""
    return Experiment(
        strategy="pipeline",
        task="char_transformer",
        task_options=TRANSFORMER | {"width": 256},
        ranks=4,
        iterations=10,
        batch_size=16,
        optimizer="adam",
        memory_limit="64 MB",
        options={"split": "layers"},
    )


# ---- comparisons


def comparisons() -> list[Question]:
    return [
        (
            "Schedules of a pipeline",
            "Four ranks, eight microbatches: how much does each idle, and how much does it hold?",
            _schedules,
        ),
        (
            "Microbatches",
            "The same minibatch in more pieces: what is left of the bubble?",
            _microbatches,
        ),
        (
            "A slow stage",
            "Half as long again in one stage: what can a schedule do about it?",
            _slow_stage,
        ),
        (
            "Ways to use four ranks",
            "Four replicas, two pipelines of two, one pipeline of four.",
            _ways,
        ),
    ]


def _schedules() -> dict[str, Experiment]:
    return {
        "sequential": piped(schedule="sequential", iterations=5),
        "GPipe": piped(schedule="gpipe", iterations=10),
        "1F1B": piped(iterations=10),
        "interleaved": piped(schedule="interleaved_1f1b", stages_per_rank=2, iterations=10),
        "ZB-H1": piped(schedule="zb_h1", iterations=10),
        "PipeDream": piped(schedule="pipedream", iterations=10),
    }


def _microbatches() -> dict[str, Experiment]:
    return {f"{many}": piped(microbatches=many, iterations=8) for many in (4, 8, 16, 32)}


def _slow_stage() -> dict[str, Experiment]:
    slow = (Slow(rank=2, factor=1.5),)
    return {
        "1F1B": piped(iterations=10),
        "1F1B, slow": piped(iterations=10).replace(faults=slow),
        "GPipe, slow": piped(schedule="gpipe", iterations=10).replace(faults=slow),
        "ZB-H1, slow": piped(schedule="zb_h1", iterations=10).replace(faults=slow),
    }


def _ways() -> dict[str, Experiment]:
    exp = piped(iterations=60).replace(pad_compute=None)
    return {
        "four replicas": exp.replace(strategy="data_parallel", options={}),
        "two pipelines of two": exp.replace(options={"replicas": 2}),
        "a pipeline of four": exp,
    }
