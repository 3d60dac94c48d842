"""Experiments to begin with: each starts as it is, and says what to look for; and comparisons.

presets()["A straggler"].experiment       for a form, or wb.run
comparisons()["Four ways to wait"].make() name -> experiment, for wb.compare
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from workbench.buckets import presets as bucket_presets
from workbench.choosing import presets as collective_presets
from workbench.fewer_words import presets as fewer_words_presets
from workbench.gossip import presets as gossip_presets
from workbench.inputs import presets as input_presets
from workbench.partitions import presets as partition_presets
from workbench.pipelines import presets as pipeline_presets
from workbench.shards import presets as shard_presets
from workbench.spec import Experiment, Jitter, Kill, Link, Network, Slow


@dataclass(frozen=True)
class Preset:
    """A name, one line of words on what to look for, and what it runs."""

    name: str
    words: str
    make: Callable[[], Experiment]
    group: str = "Averaged gradients"  # under which it stands where there are many

    @cached_property
    def experiment(self) -> Experiment:
        """Made when asked for: to check a strategy's options takes importing torch."""
        return self.make()


def presets() -> dict[str, Preset]:
    """By name, the one to begin with first."""
    slow_link = Network(links={(0, 1): Link(latency="20 ms")})
    found = [
        Preset(
            "Ring of four",
            "Every chunk goes round twice: first it gains a summand a hop, then the sum is shared.",
            lambda: Experiment(ranks=4, iterations=200),
        ),
        Preset(
            "Two ranks",
            "The smallest ring: two chunks, two steps, and both ranks always busy.",
            lambda: Experiment(ranks=2, iterations=200),
        ),
        Preset(
            "Sixteen ranks",
            "Thirty steps instead of six, yet no rank sends even twice its gradient.",
            lambda: Experiment(ranks=16, iterations=40),
        ),
        Preset(
            "A slow link",
            "From rank 0 to rank 1 everything takes 20 ms longer. Who waits: rank 1, or everybody?",
            lambda: Experiment(ranks=4, iterations=30, network=slow_link),
        ),
        Preset(
            "A straggler",
            "Rank 2 computes eight times as long. The others have nothing to do but wait for it.",
            lambda: Experiment(ranks=4, iterations=100, pad_compute="10 ms",
                               faults=(Slow(rank=2, factor=8),)),
        ),
        Preset(
            "Now and then slow",
            "Each rank is slow in a tenth of its iterations; together they are so far more often.",
            lambda: Experiment(ranks=4, iterations=100, pad_compute="10 ms",
                               faults=(Jitter(probability=0.1, factor=6),)),
        ),
        Preset(
            "A rank dies",
            "Rank 2 is killed in iteration 40: who notices first, and what was under way?",
            lambda: Experiment(ranks=4, iterations=100, faults=(Kill(rank=2, at_iteration=40),)),
        ),
        Preset(
            "DDP with overlap (padded)",
            "Buckets travel while backward still runs: only the last one's way is exposed.",
            lambda: Experiment(strategy="ddp", ranks=4, iterations=60, pad_compute="60 ms",
                               network=Network(latency="1 ms"), options={"bucket_cap_mb": 0.05}),
        ),
        Preset(
            "No overlap (padded)",
            "The computing and links of DDP's, but nothing travels before backward is done.",
            lambda: Experiment(ranks=4, iterations=60, pad_compute="60 ms",
                               network=Network(latency="1 ms")),
        ),
        Preset(
            "All through rank 0",
            "The obvious way: everybody sends to rank 0. Compare its bytes with those of the ring.",
            lambda: Experiment(ranks=4, iterations=200, all_reduce="naive"),
        ),
        Preset(
            "Sequential, to compare",
            "One process, the whole minibatch, nothing to send: the same losses, in what time?",
            lambda: Experiment(strategy="sequential", ranks=1, iterations=200),
        ),
        *(Preset(*one) for one in bucket_presets.presets()),
        *(Preset(*one, "Collectives") for one in collective_presets.presets()),
        *(Preset(*one, "Examples") for one in input_presets.presets()),
        *(Preset(*one, "Fewer words") for one in gossip_presets.presets()),
        *(Preset(*one, "Fewer words") for one in fewer_words_presets.presets()),
        *(Preset(*one, "Partitions") for one in partition_presets.presets()),
        *(Preset(*one, "Sharded") for one in shard_presets.presets()),
        *(replace(one, group="Parameter servers") for one in _served()),
        *(Preset(*one, "Models over ranks") for one in pipeline_presets.presets()),
    ]  # fmt: skip
    return {preset.name: preset for preset in found}


def served(**options: Any) -> Experiment:
    """Three workers of a parameter server that are slow now and then, so that its policy shows."""
    return Experiment(
        strategy="parameter_server", ranks=options.get("servers", 1) + 3, iterations=100,
        batch_size=48, pad_compute="10 ms", faults=(Jitter(probability=0.1, factor=6),),
        options=options,
    )  # fmt: skip


def _served() -> list[Preset]:
    """The same job under each policy, so that runs of it compare; then shards, and staleness.

    Options that are as by default are left out, as a form does.
    """
    return [
        Preset(
            "Server: BSP",
            "A parameter server in lockstep: one update a clock, and all wait for whoever is slow.",
            lambda: served(),
        ),
        Preset(
            "Server: ASP",
            "The same job, and nobody waits. How far does a fast worker get, how old a gradient?",
            lambda: served(consistency="asp"),
        ),
        Preset(
            "Server: SSP",
            "The same job, with a wall 3 iterations ahead of the slowest. Who touches it, when?",
            lambda: served(consistency="ssp"),
        ),
        Preset(
            "Server: DSSP",
            "The same job; the wall moves between 3 and 15, by what each worker's pushes foretell.",
            lambda: served(consistency="dssp"),
        ),
        Preset(
            "Three servers, even",
            "Each holds a third. No server moves more than a third of what a single one would.",
            lambda: served(servers=3),
        ),
        Preset(
            "Three servers, uneven",
            "The first holds two thirds: the others are done early, and all wait for it.",
            lambda: served(servers=3, placement=UNEVEN),
        ),
        Preset(
            "A hot server",
            "Six workers queue for one server behind slow links. Whom does it keep waiting?",
            lambda: Experiment(strategy="parameter_server", ranks=7, iterations=60, batch_size=48,
                               pad_compute="5 ms", network=Network(bandwidth="200 Mbit/s"),
                               options={"consistency": "asp"}),
        ),
        Preset(
            "Stale gradients hurt",
            "Eight workers, momentum 0.9, nobody waits: compare its loss with that of lockstep.",
            lambda: hurt(consistency="asp"),
        ),
        Preset(
            "Stale gradients dropped",
            "The same, but what is more than 4 updates old is left out: fewer gradients, fresher.",
            lambda: hurt(consistency="asp", stale_gradients="drop", drop_above=4),
        ),
        Preset(
            "A gradient of half the data",
            "The first of three workers computes half of every minibatch: its gradient counts so.",
            lambda: served(shares=(0.5, 0.25, 0.25)),
        ),
        Preset(
            "A worker dies",
            "A worker is killed in iteration 40. The others go on: nobody waits for it any more.",
            lambda: served(consistency="ssp").replace(faults=(Kill(rank=2, at_iteration=40),)),
        ),
    ]  # fmt: skip


UNEVEN = (2 / 3, 1 / 6, 1 / 6)


def hurt(**options: Any) -> Experiment:
    """Where staleness shows: eight workers, momentum 0.9, a learning rate near what is stable."""
    return Experiment(
        strategy="parameter_server", ranks=9, iterations=120, batch_size=64, lr=0.05, momentum=0.9,
        pad_compute="8 ms", faults=(Jitter(probability=0.1, factor=6),), options=options,
    )  # fmt: skip


# ---- comparisons


@dataclass(frozen=True)
class Compared:
    """A name, one line of words on the question, and the experiments that answer it."""

    name: str
    words: str
    make: Callable[[], Mapping[str, Experiment]]


def comparisons() -> dict[str, Compared]:
    """By name. ``wb.compare(comparisons()[name].make(), seeds=5)`` runs one."""
    found = [
        Compared("Four ways to wait", "One job, one jitter: who gets how far in the same time?",
                 _policies),
        Compared("Servers and workers", "Six ranks: how many should serve, how many work?", _ratio),
        Compared("Even and uneven shards", "Does it matter which server holds how much?", _shards),
        Compared("One server or a ring", "Bytes at the busiest process, as workers are added.",
                 _server_or_ring),
        Compared("Learning rate and delay", "How stale may gradients be at which learning rate?",
                 _rates),
        Compared("Drop or keep", "Eight workers, momentum 0.9: what to do with stale gradients?",
                 _drop_or_keep),
        *(Compared(*one) for one in bucket_presets.comparisons()),
        *(Compared(*one) for one in collective_presets.comparisons()),
        *(Compared(*one) for one in fewer_words_presets.comparisons()),
        *(Compared(*one) for one in input_presets.comparisons()),
        *(Compared(*one) for one in gossip_presets.comparisons()),
        *(Compared(*one) for one in shard_presets.comparisons()),
        *(Compared(*one) for one in pipeline_presets.comparisons()),
    ]  # fmt: skip
    return {one.name: one for one in found}


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
        strategy="parameter_server", ranks=6, iterations=60, batch_size=60, pad_compute="20 ms",
        network=Network(bandwidth="200 Mbit/s"),
    )  # fmt: skip
    return {
        f"{servers} : {6 - servers}": exp.replace(options={"servers": servers})
        for servers in (1, 2, 3, 4)
    }


def _shards() -> dict[str, Experiment]:
    exp = Experiment(
        strategy="parameter_server", ranks=6, iterations=60, batch_size=48, pad_compute="5 ms",
        network=Network(bandwidth="200 Mbit/s"),
    )  # fmt: skip
    ways = {"even": "even", "⅔, ⅙, ⅙": UNEVEN, "hash ring": "hash"}
    made = {name: exp.replace(options={"servers": 3, "placement": way})
            for name, way in ways.items()}  # fmt: skip
    return {"one server": exp.replace(ranks=4), **made}


def _server_or_ring() -> dict[str, Experiment]:
    found: dict[str, Experiment] = {}
    for workers in (2, 4, 8):
        exp = Experiment(ranks=workers, iterations=30, batch_size=48)
        found[f"ring, {workers}"] = exp
        found[f"server, {workers}"] = exp.replace(strategy="parameter_server", ranks=workers + 1)
    return found


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
