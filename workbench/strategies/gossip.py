"""Gossip: every worker mixes its parameters with those of its neighbours, and nobody with all.

In each iteration a worker sends its parameters to its neighbours while it computes its gradient,
takes a weighted mean of theirs and its own, and updates that: X <- XW - ηG. Columns of W add up to
1, so that the mean of all replicas moves as data parallel training's parameters do, but for
gradients that are taken at replicas which are not the mean.

Paper   Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study
        for Decentralized Parallel Stochastic Gradient Descent", NeurIPS 2017.
Cost    a rank sends its parameters to each neighbour, so 2L bytes an iteration in a ring of any
        number of ranks (data parallel: 2(p-1)/p·L), and waits for its neighbours only.
Law     without gradients the mean stays, and disagreement shrinks to |λ₂| of it a round. Mixed
        after the update, over a complete graph, it is data parallel within rounding (SGD).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from workbench.gossip.graphs import Graph
    from workbench.job import Job
    from workbench.spec import Experiment

GRAPHS = ("ring", "complete", "torus", "exponential")


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
            raise ValueError(f"spread = {self.spread}: it is 0 or more")


def check(exp: Experiment, config: Config) -> None:
    """Raises SpecError for a graph that cannot be."""
    _graph(exp, config)


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.gossip.facts import peers
    from workbench.gossip.theory import rate

    made = _graph(exp, config)
    left = rate(made.weights)
    share = f"{left:.0%}" if left < 0.99 else f"{left:.1%}"
    words = f"All mix with their neighbours every iteration: {share} of what differs is left."
    return peers(made, words, rate=left)


def _graph(exp: Experiment, config: Config) -> Graph:
    from workbench.gossip.graphs import graph

    return graph(config.graph, exp.ranks, GRAPHS)


def train(job: Job, config: Config) -> None:
    from workbench.batches import partition
    from workbench.gossip.mixing import Mixing
    from workbench.gossip.start import spread_out
    from workbench.parameter_servers.flat import Flat

    graph = _graph(job.exp, config)
    job.lead = max(graph.distances())
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    mixing = Mixing(job, graph, flat.values_N)
    for step in job.steps():
        mine = partition(step.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        if config.mix == "before":
            mixing.start()
        loss = job.forward(model, job.load(mine if len(mine) else step.ids[:1]))
        # A gradient counts by its samples, so that the mean of all is the minibatch's.
        job.backward(loss, weight=len(mine) * job.ranks / len(step.ids))
        if config.mix == "before":
            mixing.finish()
            job.update(optimizer)
        else:
            job.update(optimizer)
            mixing.start()
            mixing.finish()
        job.sketch(model)
        job.report(loss, len(mine))
    job.finish(model, average=True)
