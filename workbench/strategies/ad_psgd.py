"""AD-PSGD: a rank that is ready averages its parameters with one neighbor, without a wait for all.

The ranks are two sides of a graph. An active one sends its parameters to a neighbor drawn at
random while it computes its gradient, gets that neighbor's back, takes the mean of both, and
updates. A passive one trains likewise, while a thread of its own answers: it sends its parameters
back and takes the mean, in one go. Only active ranks wait, and only for a thread that never does:
so there is no deadlock, and a slow rank delays no other.

Paper   Lian, Zhang, Zhang & Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent",
        ICML 2018.
Cost    two messages of a model's size for each iteration of an active rank.
Law     an averaging keeps the sum of the two, so without gradients the mean of all stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph

TRAITS = Traits(
    title="AD-PSGD",
    replicas="own",
    update="asynchronous",
    recovers="any",
    skips="own share",
    messages="neighbors",
    scene="peers",
)

GRAPHS = ("bipartite", "ring")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="ad_psgd"``."""

    pairs: str | tuple[tuple[int, int], ...] = (
        "bipartite"  # every even rank with every odd one; ring (an even number), or a list of pairs
    )
    spread: float = 0.0  # deviation of noise on each rank's first parameters, to see them agree

    def __post_init__(self) -> None:
        if self.spread < 0:
            raise SpecError.at("spread", "must be 0 or more", self.spread)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for an impossible graph."""
    if config.pairs != "bipartite":  # which always has two sides, and a quarter of n^2 edges
        _sides(exp.ranks, config)
    if exp.backend != "workbench":
        raise SpecError.at(
            "backend", "strategy 'ad_psgd' runs over backend='workbench'", exp.backend
        )


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Raise SpecError for pairs that are given by rank, or need an even number of ranks."""
    if config.pairs != "bipartite" and not same_ranks:
        raise SpecError.at("pairs", "would lack a rank: take 'bipartite'", config.pairs)


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.training.gossip.facts import peers
    from workbench.training.gossip.theory import pairs_rate

    result, sides = _sides(exp.ranks, config)
    active = [rank for rank, side in enumerate(sides) if side == 0 and result.out_of(rank)]
    words = "Each active rank averages with one passive neighbor at a time, drawn at random."
    left = pairs_rate(result, active)
    return peers(result, words, synchronous=False, rate=left, pairs=True, stands=active)


def _sides(ranks: int, config: Config) -> tuple[Graph, list[int]]:
    from workbench.training.gossip.graphs import graph, two_sides

    result = graph(config.pairs, ranks, GRAPHS, option="pairs")
    return result, two_sides(result, option="pairs")


def train(job: Job, config: Config) -> None:
    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.training.gossip.pairs import Active, Passive
    from workbench.training.gossip.start import spread_out
    from workbench.training.parameter_servers.flat import Flat

    graph, sides = _sides(job.ranks, config)
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    pairs = (Passive if sides[job.rank] else Active)(job, graph, flat.values_N)
    job.keep("shared parameters", getattr(pairs, "shared_N", flat.values_N))
    job.checkpoints.meets = True  # an averaging is of two ranks, at any iteration
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        pairs.start(minibatch.iteration)
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            # A gradient counts by its samples, so that the mean of all is the minibatch's.
            job.backward(loss, weight=len(mine) * job.ranks / len(minibatch.ids))
        if not attempt.skipped:
            job.report(loss, len(mine))
        with pairs.averaged():  # what others did to the parameters meanwhile is in them
            if not attempt.skipped:
                job.update(optimizer)
            job.sketch(model)
    pairs.end()
    job.finish(model, average=True)
