"""Parameter servers: one job under every policy, shards, staleness; and questions about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.spec import Experiment, Jitter, Kill, Network
from workbench.presets._touched import touched

Words = tuple[str, str, Callable[[], Experiment]]  # a preset's name, words, and how it is made
Question = tuple[str, str, Callable[[], Mapping[str, Experiment]]]
GROUP, ORDER = "Parameter servers", 90
MEASURES = {  # that decide a comparison; others: time per step
    "Four ways to wait": (
        "wall_seconds",
        "loss_end",
    ),
    "One server or a ring": ("bytes_busiest",),
    "Learning rate and delay": ("loss_end",),
    "Drop or keep": ("loss_end",),
}


def served(**options: Any) -> Experiment:
    """Return an experiment with three workers of a parameter server that are slow at times."""
    return Experiment(
        strategy="parameter_server",
        ranks=options.get("servers", 1) + 3,
        iterations=100,
        batch_size=48,
        pad_compute="10 ms",
        faults=(Jitter(probability=0.1, factor=6),),
        options=options,
    )


def presets() -> list[Words]:
    """Return the same job under each policy, to compare runs; then shards, and staleness.

    Options with their default value are left out, as a form does.
    """
    return [*_by_policy(), *_several_servers(), *_stale_and_uneven()]


def _by_policy() -> list[Words]:
    """Return one job under each policy."""
    return [
        (
            "Server: BSP",
            "A parameter server in lockstep: one update a clock, and all wait for the slowest.",
            lambda: touched(served()),
        ),
        (
            "Server: ASP",
            "The same job, without waiting. How far does a fast worker get, how old a gradient?",
            lambda: touched(served(consistency="asp")),
        ),
        (
            "Server: SSP",
            "The same job, with a wall 3 iterations ahead of the slowest. Who touches it, when?",
            lambda: touched(served(consistency="ssp")),
        ),
        (
            "Server: DSSP",
            "The same job; the wall moves between 3 and 15, by what each worker's pushes foretell.",
            lambda: touched(served(consistency="dssp")),
        ),
    ]


def _several_servers() -> list[Words]:
    """Return jobs in which the servers are what counts."""
    return [
        (
            "Three servers, even",
            "Each holds a third. No server moves more than a third of what a single one would.",
            lambda: served(servers=3),
        ),
        (
            "Three servers, uneven",
            "The first holds two thirds: the others are done early, and all wait for it.",
            lambda: served(servers=3, placement=UNEVEN),
        ),
        (
            "A hot server",
            "Six workers queue for one server behind slow links. Whom does it keep waiting?",
            lambda: touched(
                Experiment(
                    strategy="parameter_server",
                    ranks=7,
                    batch_size=48,
                    pad_compute="5 ms",
                    network=Network(bandwidth="200 Mbit/s"),
                    options={"consistency": "asp"},
                )
            ),
        ),
    ]


def _stale_and_uneven() -> list[Words]:
    """Return jobs with stale gradients, and with workers that differ."""
    return [
        (
            "Stale gradients hurt",
            "Eight workers, momentum 0.9, no waiting: compare its loss with that of lockstep.",
            lambda: hurt(consistency="asp"),
        ),
        (
            "Stale gradients dropped",
            "The same, but what is more than 4 updates old is left out: fewer gradients, fresher.",
            lambda: hurt(consistency="asp", stale_gradients="drop", drop_above=4),
        ),
        (
            "A gradient of half the data",
            "The first of three workers computes half of every minibatch: its gradient counts so.",
            lambda: served(shares=(0.5, 0.25, 0.25)),
        ),
        (
            "Common and rare tags",
            "Ten tags that overlap, from common to rare; a server and three workers learn them.",
            lambda: Experiment(
                strategy="parameter_server",
                task="video_tags",
                ranks=4,
                iterations=300,
                batch_size=48,
            ),
        ),
        (
            "A worker dies",
            "Killed after 40 iterations. The others go on, and no longer wait for it.",
            lambda: served(consistency="ssp").replace(faults=(Kill(rank=2, at_iteration=40),)),
        ),
    ]


UNEVEN = (2 / 3, 1 / 6, 1 / 6)


def hurt(**options: Any) -> Experiment:
    """Return an experiment that shows the harm of staleness.

    It has eight workers, momentum 0.9 and a learning rate close to instability.
    """
    return Experiment(
        strategy="parameter_server",
        ranks=9,
        iterations=120,
        batch_size=64,
        lr=0.05,
        momentum=0.9,
        pad_compute="8 ms",
        faults=(Jitter(probability=0.1, factor=6),),
        options=options,
    )


def comparisons() -> list[Question]:
    return [
        ("Four ways to wait", "One job, one jitter: how far does each get by then?", _policies),
        ("Servers and workers", "Six ranks: how many should serve, how many work?", _ratio),
        ("Even and uneven shards", "Does it matter which server holds how much?", _shards),
        (
            "One server or a ring",
            "Bytes at the busiest process, as workers are added.",
            _server_or_ring,
        ),
        ("Learning rate and delay", "How stale can gradients be at which learning rate?", _rates),
        (
            "Drop or keep",
            "Eight workers, momentum 0.9: what to do with stale gradients?",
            _drop_or_keep,
        ),
    ]


def _policies() -> dict[str, Experiment]:
    return {
        "BSP": served(consistency="bsp"),
        "SSP 1": served(consistency="ssp", staleness=1),
        "SSP 3": served(consistency="ssp"),
        "DSSP 3 to 15": served(consistency="dssp"),
        "SSP 15": served(consistency="ssp", staleness=15),
        "ASP": served(consistency="asp"),
    }


def _ratio() -> dict[str, Experiment]:
    exp = Experiment(
        strategy="parameter_server",
        ranks=6,
        iterations=60,
        batch_size=60,
        pad_compute="20 ms",
        network=Network(bandwidth="200 Mbit/s"),
    )
    return {
        f"{servers} : {6 - servers}": exp.replace(options={"servers": servers})
        for servers in (1, 2, 3, 4)
    }


def _shards() -> dict[str, Experiment]:
    exp = Experiment(
        strategy="parameter_server",
        ranks=6,
        iterations=60,
        batch_size=48,
        pad_compute="5 ms",
        network=Network(bandwidth="200 Mbit/s"),
    )
    ways = {"even": "even", "⅔, ⅙, ⅙": UNEVEN, "hash ring": "hash"}
    experiments = {
        name: exp.replace(options={"servers": 3, "placement": way}) for name, way in ways.items()
    }
    return {"one server": exp.replace(ranks=4), **experiments}


def _server_or_ring() -> dict[str, Experiment]:
    experiments: dict[str, Experiment] = {}
    for workers in (2, 4, 8):
        exp = Experiment(ranks=workers, iterations=30, batch_size=48)
        experiments[f"ring, {workers}"] = exp
        experiments[f"server, {workers}"] = exp.replace(
            strategy="parameter_server", ranks=workers + 1
        )
    return experiments


def _rates() -> dict[str, Experiment]:
    return {
        f"{policy.upper()}, lr {lr:g}": hurt(consistency=policy).replace(lr=lr)
        for lr in (0.0125, 0.025, 0.05)
        for policy in ("bsp", "asp")
    }


def _drop_or_keep() -> dict[str, Experiment]:
    return {
        "BSP": hurt(consistency="bsp"),
        "keep": hurt(consistency="asp"),
        "drop above 4": hurt(consistency="asp", stale_gradients="drop", drop_above=4),
        "scale": hurt(consistency="asp", stale_gradients="scale"),
    }
