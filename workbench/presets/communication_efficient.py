"""Experiments that send fewer or larger messages: to begin with, and to compare.

``presets`` are (name, words, make), ``comparisons`` (name, words, make name -> experiment);
workbench.presets.catalogue shows both beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.experiment.spec import Experiment, Network

Words = tuple[str, str, Callable[[], Experiment]]
Question = tuple[str, str, Callable[[], dict[str, Experiment]]]
GROUP, ORDER = "Less communication", 60
MEASURES = {  # that decide a comparison; others: time per step
    "Less communication": (
        "loss_end",
        "bytes_all",
    ),
    "How often to average": (
        "loss_end",
        "bytes_all",
    ),
    "Kept or thrown away": ("loss_end",),
    "Larger minibatches": ("loss_end",),
}
SCENES = {
    "200 small tensors": "timeline",
    "200 small tensors, fused": "timeline",
    "Fused in cycles (padded)": "timeline",
    "A large minibatch with warm-up": "overview",
}


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [
        (
            "Local SGD",
            "Every 8 iterations all take the mean of their parameters; in between, no messages.",
            lambda: quiet("local_sgd"),
        ),
        (
            "Local SGD, every 40",
            "A fifth of those words. How far do replicas drift apart, and what does it cost?",
            lambda: quiet("local_sgd", every=40),
        ),
        (
            "DiLoCo",
            "As many words as local SGD: what all moved is one gradient, with momentum of its own.",
            lambda: quiet("diloco"),
        ),
        (
            "The largest hundredth",
            "Top-k: a rank sends 1 % of its gradient, and keeps the rest for later.",
            lambda: quiet("top_k"),
        ),
        (
            "The rest thrown away",
            "The same without the memory of what was not sent: does the loss still come down?",
            lambda: quiet("top_k", feedback=False),
        ),
        (
            "200 small tensors",
            "A hundred layers behind slow links: every tensor pays the latency for itself.",
            lambda: small(threshold="0 MB"),
        ),
        (
            "200 small tensors, fused",
            "The same gradients in one buffer: the latency is paid once.",
            lambda: small(),
        ),
        (
            "Fused in cycles (padded)",
            "Every 4 ms: what has every rank by now? It travels while backward goes on.",
            lambda: small(cycle="4 ms").replace(pad_compute="60 ms"),
        ),
        (
            "A large minibatch with warm-up",
            "8 times the samples, 8 times the learning rate, and the first 15 updates grow to it.",
            lambda: large(reference_batch=32, warmup=15),
        ),
    ]


def quiet(strategy: str, **options: Any) -> Experiment:
    """Return the same job for each strategy, whatever it communicates."""
    return Experiment(strategy=strategy, ranks=4, iterations=160, options=options)


def small(**options: Any) -> Experiment:
    """Return an experiment with a hundred layers, each a weight and a bias, and slow links."""
    return Experiment(
        strategy="fusion",
        task="mlp_layers",
        task_options={"layers": 100, "width": 32},
        ranks=4,
        iterations=20,
        network=Network(latency="500 µs"),
        options=options,
    )


def large(**fields: Any) -> Experiment:
    return Experiment(ranks=4, iterations=60, batch_size=256, lr=0.15, **fields)


# ---- comparisons


def comparisons() -> list[Question]:
    return [
        (
            "Less communication",
            "One job, ever fewer bytes: which of them learns most from a megabyte?",
            _words,
        ),
        ("How often to average", "Local SGD from every iteration to every fortieth.", _often),
        (
            "Kept or thrown away",
            "The largest entries of a gradient: what becomes of the others?",
            _kept,
        ),
        ("Fuse small tensors", "200 tensors, slow links: how full should a message be?", _fused),
        (
            "Larger minibatches",
            "As many samples, fewer updates: can a learning rate make up for it?",
            _batches,
        ),
    ]


def _words() -> dict[str, Experiment]:
    return {
        "data parallel": quiet("data_parallel"),
        "local SGD": quiet("local_sgd"),
        "DiLoCo": quiet("diloco"),
        "top 1 %": quiet("top_k"),
    }


def _often() -> dict[str, Experiment]:
    return {f"every {every}": quiet("local_sgd", every=every) for every in (1, 4, 10, 40)}


def _kept() -> dict[str, Experiment]:
    return {
        "all": quiet("data_parallel"),
        "1 %, rest kept": quiet("top_k"),
        "1 %, rest lost": quiet("top_k", feedback=False),
        "0.1 %, rest kept": quiet("top_k", ratio=0.001),
    }


def _fused() -> dict[str, Experiment]:
    return {
        "each alone": small(threshold="0 MB"),
        "20 kB": small(threshold="20 kB"),
        "100 kB": small(threshold="100 kB"),
        "all in one": small(),
    }


def _batches() -> dict[str, Experiment]:
    """Return the same samples in minibatches of eight times the size: an eighth of the updates."""
    few = large().replace(batch_size=32, iterations=480)
    many = large()
    return {
        "32": few,
        "256, the same rate": many,
        "256, 8 × the rate": many.replace(reference_batch=32),
        "256 with warm-up": many.replace(reference_batch=32, warmup=15),
    }
