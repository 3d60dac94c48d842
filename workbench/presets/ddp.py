"""DDP to begin with, and DDP compared: what presets/catalogue.py has of it.

24 layers of 64 x 64, 400 kB of gradients, over links on which an all-reduce of all of them takes
about as long as backward; computing is padded, so that it shows on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Network
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Averaged gradients", 20
MEASURES = {  # that decide a comparison; others: time per step
    "Fewer bytes a gradient": (
        "bytes_all",
        "loss_end",
    ),
}
LAYERS = {"layers": 24, "width": 64}
LINKS = Network(latency="0.3 ms", bandwidth="150 Mbit/s")
CAPS = (0.02, 0.05, 0.1, 0.2, 0.4)  # MiB


def bucketed(iterations: int = 40, **options: Any) -> Experiment:
    """Return an experiment with four ranks, many small layers and slow links."""
    return Experiment(
        strategy="ddp",
        task="mlp_layers",
        task_options=LAYERS,
        ranks=4,
        iterations=iterations,
        batch_size=32,
        pad_compute="60 ms",
        network=LINKS,
        options=options,
    )


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [
        (
            "DDP: four buckets",
            "Each bucket sets off when it is full. Which of them does backward not hide, and why?",
            lambda: touched(bucketed(bucket_cap_mb=0.1)),
        ),
        (
            "DDP: one bucket",
            "The usual 25 MiB hold this model's gradients at once: nothing is left to overlap.",
            lambda: bucketed(),
        ),
        (
            "DDP: a bucket for each tensor",
            "48 small all-reduces: each sets off early, and each pays for its own messages.",
            lambda: bucketed(bucket_cap_mb=0.0001),
        ),
        (
            "DDP: four backward passes per update",
            "Gradients of three parts of the samples stay on the rank (no_sync): a quarter of the "
            "messages.",
            lambda: bucketed(bucket_cap_mb=0.1, accumulate=4, iterations=12),
        ),
        (
            "DDP: half the bytes",
            "Gradients travel as 16-bit numbers. What is left to hide, and does the loss notice?",
            lambda: bucketed(bucket_cap_mb=0.1, compression="fp16"),
        ),
        (
            "DDP: PowerSGD",
            "After 10 iterations a gradient is sent as two thin factors. How many bytes remain?",
            lambda: bucketed(bucket_cap_mb=0.1, compression="powersgd", powersgd_rank=2),
        ),
        (
            "DDP: uneven shares",
            "Rank 0 takes half of each minibatch: its gradient counts as half, so nothing changes.",
            lambda: bucketed(bucket_cap_mb=0.1, shares=(3.0, 1.0, 1.0, 1.0)),
        ),
        (
            "DDP: samples run out",
            "Rank 1 has none left after 10 iterations, yet takes part in every all-reduce: Join.",
            lambda: bucketed(bucket_cap_mb=0.1, runs_out=(40, 10, 40, 20)),
        ),
        (
            "DDP: parameters without a use",
            "Two layers have no gradient. DDP would wait for them, unless it looks for such.",
            lambda: bucketed(bucket_cap_mb=0.1, find_unused=True).replace(
                task_options=LAYERS | {"unused": 2}
            ),
        ),
    ]


# ---- comparisons


def comparisons() -> list[Question]:
    return [
        (
            "Larger buckets: better or worse?",
            "Small ones pay for messages, large ones come too late: where is the bottom?",
            _caps,
        ),
        (
            "Did DDP help?",
            "The same gradients: one after the other when all are there, or in buckets meanwhile.",
            _ways,
        ),
        (
            "Fewer bytes a gradient",
            "16-bit numbers, or factors of low rank: bytes against loss.",
            _compressed,
        ),
        (
            "Fewer messages an update",
            "The same minibatch in 1, 2, 4 backward passes: only the last one sends.",
            _accumulated,
        ),
    ]


def _caps() -> dict[str, Experiment]:
    experiments = {f"{cap:g} MiB": bucketed(15, bucket_cap_mb=cap) for cap in CAPS}
    return {"a tensor": bucketed(15, bucket_cap_mb=0.0001), **experiments, "25 MiB": bucketed(15)}


def _ways() -> dict[str, Experiment]:
    by_hand = bucketed(20).replace(strategy="data_parallel")
    return {
        "by hand": by_hand,
        "DDP, one bucket": bucketed(20),
        "DDP, four buckets": bucketed(20, bucket_cap_mb=0.1),
    }


def _compressed() -> dict[str, Experiment]:
    exp = bucketed(60, bucket_cap_mb=0.1).replace(pad_compute=None)
    each: dict[str, dict[str, Any]] = {
        "float32": {},
        "fp16": {"compression": "fp16"},
        "bf16": {"compression": "bf16"},
    }
    each |= {
        f"PowerSGD, rank {rank}": {"compression": "powersgd", "powersgd_rank": rank}
        for rank in (2, 4)
    }
    return {name: exp.replace(options=exp.options | more) for name, more in each.items()}


def _accumulated() -> dict[str, Experiment]:
    exp = bucketed(10, bucket_cap_mb=0.1)
    return {
        f"{many}": exp.replace(
            pad_compute=f"{60 // many} ms",
            options=exp.options | ({"accumulate": many} if many > 1 else {}),
        )
        for many in (1, 2, 4)
    }
