"""Presets for sources of examples, which presets/catalogue.py lists.

The links from servers to workers are slow, those between workers are not; computing is padded, so
that what a prefetch hides shows on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Kill, Link, Network

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Examples", 40
MEASURES = {  # that decide a comparison; others: time per step
    "Data servers or partitions?": ("bytes_busiest",),
    "How far ahead to ask": ("stall_ms",),
}
SCENES = {
    "A partitioned data set": "samples",
}
WAY = Link(latency="10 ms", bandwidth="20 Mbit/s")  # of examples, from a server to a worker


def served(workers: int = 3, iterations: int = 60, **options: Any) -> Experiment:
    """Return an experiment whose workers train on what servers send over slow links."""
    servers = options.get("servers", 1)
    ranks = servers + workers
    links = {(server, worker): WAY for server in range(servers) for worker in range(servers, ranks)}
    return Experiment(
        strategy="data_servers",
        ranks=ranks,
        iterations=iterations,
        batch_size=48,
        pad_compute="30 ms",
        network=Network(links=links),
        options=options,
    )


def partitioned(workers: int = 3, iterations: int = 60, **options: Any) -> Experiment:
    """Return the same training, where each rank has its own share of the data set."""
    return Experiment(
        ranks=workers, iterations=iterations, batch_size=48, pad_compute="30 ms", options=options
    )


def presets() -> list[Words]:
    """Return the presets; options with their default value are left out, as a form does."""
    return [
        (
            "Examples from a server",
            "Rank 0 sends every worker its samples, two minibatches ahead. Does a worker wait?",
            lambda: served(),
        ),
        (
            "Examples, asked for at need",
            "The same server, no requests ahead: each step begins by waiting for examples.",
            lambda: served(ahead=0),
        ),
        (
            "A server that dies",
            "Rank 0 holds all examples and is killed after 20 iterations. How far do others get?",
            lambda: served().replace(faults=(Kill(rank=0, at_iteration=20),)),
        ),
        (
            "A partitioned data set",
            "Each rank has every third sample and no other: nothing to send, but uneven parts.",
            lambda: partitioned(examples="partitioned"),
        ),
    ]


def comparisons() -> list[Question]:
    return [
        (
            "Data servers or partitions?",
            "Three workers: how much does each rank send, and which ranks stand still?",
            _ways,
        ),
        (
            "How far ahead to ask",
            "A server's answer takes longer than a step: what does it cost?",
            _ahead,
        ),
    ]


def _ways() -> dict[str, Experiment]:
    return {
        "one server": served(iterations=40),
        "three servers": served(iterations=40, servers=3),
        "one server, no prefetch": served(iterations=40, ahead=0),
        "a part each": partitioned(iterations=40, examples="partitioned"),
    }


def _ahead() -> dict[str, Experiment]:
    return {
        f"{ahead} ahead": served(iterations=30, ahead=ahead).replace(pad_compute="10 ms")
        for ahead in (0, 1, 2, 4)
    }
