"""AD-PSGD: whoever is ready averages its parameters with one neighbour, and nobody waits for all.

The ranks are two sides of a graph. An active one sends its parameters to a neighbour drawn at
random while it computes its gradient, gets that neighbour's back, takes the mean of both, and
updates. A passive one trains likewise, while a thread of its own answers: it sends its parameters
back and takes the mean, in one go. Only active ranks wait, and only for a thread that never does:
so there is no deadlock, and a slow rank holds up nobody.

Paper   Lian, Zhang, Zhang & Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent",
        ICML 2018.
Cost    two messages of a model's size for each iteration of an active rank.
Law     an averaging keeps the sum of the two, so without gradients the mean of all stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import SpecError

if TYPE_CHECKING:
    from workbench.gossip.graphs import Graph
    from workbench.job import Job
    from workbench.spec import Experiment

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
            raise ValueError(f"spread = {self.spread}: it is 0 or more")


def check(exp: Experiment, config: Config) -> None:
    """Raises SpecError for a graph that cannot be."""
    _sides(exp, config)
    if exp.backend != "workbench":
        raise SpecError(
            f"Experiment.backend = {exp.backend!r}: strategy 'ad_psgd' runs over "
            "backend='workbench'"
        )


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.gossip.facts import peers
    from workbench.gossip.theory import pairs_rate

    made, sides = _sides(exp, config)
    active = [rank for rank, side in enumerate(sides) if side == 0 and made.out_of(rank)]
    words = "Each active rank averages with one passive neighbour at a time, drawn at random."
    left = pairs_rate(made, active)
    return peers(made, words, synchronous=False, rate=left, pairs=True, stands=active)


def _sides(exp: Experiment, config: Config) -> tuple[Graph, list[int]]:
    from workbench.gossip.graphs import graph, two_sides

    made = graph(config.pairs, exp.ranks, GRAPHS, option="pairs")
    return made, two_sides(made, option="pairs")


def train(job: Job, config: Config) -> None:
    from workbench.batches import partition
    from workbench.gossip.pairs import Active, Passive
    from workbench.gossip.start import spread_out
    from workbench.parameter_servers.flat import Flat

    graph, sides = _sides(job.exp, config)
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    pairs = (Passive if sides[job.rank] else Active)(job, graph, flat.values_N)
    for step in job.steps():
        mine = partition(step.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        pairs.start(step.iteration)
        loss = job.forward(model, job.load(mine if len(mine) else step.ids[:1]))
        # A gradient counts by its samples, so that the mean of all is the minibatch's.
        job.backward(loss, weight=len(mine) * job.ranks / len(step.ids))
        with pairs.averaged():  # what others did to the parameters meanwhile is in them
            job.update(optimizer)
            job.sketch(model)
        job.report(loss, len(mine))
    pairs.end()
    job.finish(model, average=True)
