"""Experiments of every strategy, drawn by chance, that train forever."""

from __future__ import annotations

import random
from typing import Any

import workbench as wb
from tests.live import LONG
from workbench.collectives import algorithms

LAYERS = {"task": "mlp_layers", "task_options": {"layers": 4, "width": 64}}
TEXT = {
    "task": "char_transformer",
    "task_options": {"layers": 2, "width": 32, "heads": 4, "context": 16},
}

# strategy -> numbers of ranks, further fields, options of which one is taken
JOBS: dict[str, tuple[tuple[int, ...], dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "sequential": ((1,), {}, ({},)),
    "data_parallel": ((2, 3, 4, 5), {}, ({}, {"examples": "partitioned"})),
    "ddp": (
        (2, 3, 4),
        LAYERS,
        (
            {},
            {"bucket_cap_mb": 0.01},
            {"static_graph": True},
            {"gradient_as_bucket_view": True},
            {"compression": "powersgd", "powersgd_start": 2},
            {"accumulate": 2},
        ),
    ),
    "parameter_server": (
        (3, 4, 5),
        {},
        (
            {},
            {"consistency": "asp"},
            {"consistency": "ssp", "staleness": 1},
            {"servers": 2},
            {"consistency": "dssp"},
        ),
    ),
    "pipeline": (
        (2, 4),
        {**TEXT, "batch_size": 16},
        (
            {"microbatches": 4, "split": "layers"},
            {"microbatches": 4, "split": "layers", "schedule": "gpipe"},
            {"microbatches": 4, "split": "layers", "replicas": 2},
        ),
    ),
    "tensor_parallel": ((2, 4), TEXT, ({}, {"sequence_parallel": True})),
    "fsdp": ((2, 3, 4), LAYERS, ({}, {"prefetch": 1}, {"reshard_after_forward": False})),
    "gossip": ((3, 4, 5), {}, ({}, {"graph": "complete"}, {"mix": "after"})),
    "ad_psgd": ((4,), {}, ({}, {"pairs": "ring"})),
    "malt": ((3, 4), {}, ({}, {"wait": True}, {"dataflow": "ring"})),
    "local_sgd": ((2, 3, 4), {}, ({}, {"every": 3})),
    "diloco": ((2, 3), {}, ({"every": 4},)),
    "top_k": ((2, 3), {}, ({},)),
    "fusion": ((2, 3), LAYERS, ({}, {"threshold": "0 MB"}, {"cycle": "1 ms"})),
    "data_servers": ((2, 3, 4), {}, ({}, {"ahead": 0})),
}


def experiment(chance: random.Random, **fixed: Any) -> wb.Experiment:
    """A small one that trains forever."""
    strategy = fixed.pop("strategy", None) or chance.choice([*JOBS])
    counts, fields, options = JOBS[strategy] if isinstance(strategy, str) else ((2, 3), {}, ({},))
    ranks = chance.choice(counts)
    network = wb.Network()
    if chance.random() < 0.2:
        network = wb.Network(latency=chance.choice(["200 us", "1 ms"]), bandwidth="1 Gbit/s")
    strategy_options = dict(chance.choice(options))
    if ranks < 4:
        strategy_options.pop("replicas", None)
    drawn: dict[str, Any] = {
        "strategy": strategy,
        "ranks": ranks,
        "iterations": LONG,
        "batch_size": 16,
        "threads": 1,
        "seed": chance.randrange(1000),
        "options": strategy_options,
        "network": network,
        "all_reduce": chance.choice(["auto", *algorithms("all_reduce")]),
        "chunk_bytes": chance.choice([4096, 65_536, 262_144]),
        "optimizer": chance.choice(["sgd", "adam", "adamw", "adagrad"]),
        "record": chance.random() < 0.9,
    }
    return wb.Experiment(**{**drawn, **fields, **fixed})
