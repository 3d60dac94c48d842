"""Gossip: every rank mixes its parameters with those of its neighbors, and never with all.

In each iteration a rank sends its parameters to its neighbors while it computes its gradient,
takes a weighted mean of theirs and its own, and updates that: X <- XW - ηG. Columns of W add up to
1, so that the mean of all replicas moves as data parallel training's parameters do, but for
gradients that are taken at replicas which are not the mean.

Paper   Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study
        for Decentralized Parallel Stochastic Gradient Descent", NeurIPS 2017.
Cost    a rank sends its parameters to each neighbor, so 2L bytes per iteration in a ring of any
        number of ranks (data parallel: 2(p-1)/p·L), and waits for its neighbors only.
Law     without gradients the mean stays, and disagreement shrinks to |λ₂| of it per round. Mixed
        after the update, over a complete graph, it is data parallel within rounding (SGD).
Loss    where a rank is lost, each other goes on with its own replica: what the lost one had not
        yet passed on is lost with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph

GRAPHS = ("ring", "complete", "torus", "exponential")
TRAITS = Traits(
    replicas="own",
    update="rounds",
    recovers="any",
    skips="own share",
    messages="neighbors",
    scene="peers",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="gossip"``."""

    graph: str | tuple[tuple[int, int], ...] = (
        "ring"  # ring, complete, torus, exponential, or pairs of ranks: more edges agree faster
    )
    mix: Literal["before", "after"] = "before"  # the update; after: messages wait for the gradient
    spread: float = 0.0  # deviation of noise on each rank's first parameters, to see them agree

    def __post_init__(self) -> None:
        if self.spread < 0:
            raise SpecError.at("spread", "must be 0 or more", self.spread)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for an impossible graph. Named graphs fit any number of ranks."""
    from workbench.training.gossip.graphs import check_name

    if isinstance(config.graph, str):
        check_name(config.graph, GRAPHS)
    else:
        _graph(exp.ranks, config)


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Raise SpecError for a graph that is given by rank, and would lack a node."""
    if not isinstance(config.graph, str) and not same_ranks:
        raise SpecError.at(
            "graph", f"has nodes that may be lost: take one of {GRAPHS}", config.graph
        )


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.training.gossip.facts import peers
    from workbench.training.gossip.theory import rate

    result = _graph(exp.ranks, config)
    left = rate(result.weights)
    share = f"{left:.0%}" if left < 0.99 else f"{left:.1%}"
    words = f"All mix with their neighbors every iteration: {share} of what differs is left."
    return peers(result, words, rate=left)


def _graph(ranks: int, config: Config) -> Graph:
    from workbench.training.gossip.graphs import graph

    return graph(config.graph, ranks, GRAPHS)


def train(job: Job, config: Config) -> None:
    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.training.gossip.mixing import Mixing
    from workbench.training.gossip.start import spread_out
    from workbench.training.parameter_servers.flat import Flat

    graph = _graph(job.ranks, config)
    job.lead = max(graph.distances(), default=0)
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    mixing = Mixing(job, graph, flat.values_N)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        if config.mix == "before":
            mixing.start()
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            # A gradient counts by its samples, so that the mean of all is the minibatch's.
            job.backward(loss, weight=len(mine) * job.ranks / len(minibatch.ids))
        if config.mix == "before":
            mixing.finish()
        if not attempt.skipped:
            job.report(loss, len(mine))
            job.update(optimizer)
        if config.mix == "after":
            mixing.start()
            mixing.finish()
        job.sketch(model)
    job.finish(model, average=True)
