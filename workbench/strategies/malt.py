"""MALT: every few iterations a worker scatters its update to a few peers, and averages what came.

A worker trains for itself. Every ``cb`` iterations it sends what its training has changed since the
last time to its peers, which are few and chosen so that news reaches everybody in few hops; then it
takes the mean of its own change and of those that have come by now, and goes on from there. It
waits for nobody, unless told to.

Paper   Li, Kadav, Kruus & Ungureanu, "MALT: Distributed Data-Parallelism for Existing ML
        Applications", EuroSys 2015.
Cost    peers·L bytes of a rank every cb iterations, so peers/(p-1)/cb of all to all in each one.
Law     Halton's offsets n/2, n/4, 3n/4, ... are taken until they and n have no divisor in common:
        the first ⌈lg n⌉ alone can leave ranks apart. Waiting, every iteration, all to all, with
        SGD: data parallel within rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.errors import SpecError

if TYPE_CHECKING:
    from workbench.gossip.graphs import Graph
    from workbench.job import Job
    from workbench.spec import Experiment


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="malt"``."""

    cb: int = 5  # iterations between two scatters (communication batch): larger sends less
    dataflow: Literal["halton", "ring", "complete"] = "halton"  # complete: all to all
    peers: int = 0  # offsets of Halton's sequence; 0: as many as connect all ranks
    scatter: Literal["updates", "parameters"] = "updates"  # parameters: replicas come together
    wait: bool = False  # for an update of every peer at each scatter, as bulk synchronous training
    spread: float = 0.0  # deviation of noise on each rank's first parameters, to see them agree

    def __post_init__(self) -> None:
        for name, least in (("cb", 1), ("peers", 0), ("spread", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: it is {least} or more")
        if self.peers and self.dataflow != "halton":
            raise ValueError(
                f"peers = {self.peers} is of dataflow = 'halton', not of {self.dataflow!r}"
            )


def check(exp: Experiment, config: Config) -> None:
    """Raises SpecError for what cannot be with so many ranks."""
    if config.peers >= max(exp.ranks, 2):
        raise SpecError(
            f"Experiment.options.peers = {config.peers}: {exp.ranks} ranks have "
            f"{exp.ranks - 1} others each"
        )
    if exp.backend != "workbench":
        raise SpecError(
            f"Experiment.backend = {exp.backend!r}: strategy 'malt' runs over backend='workbench'"
        )


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.gossip.facts import peers
    from workbench.gossip.theory import rate

    made = _graph(exp, config)
    often = "every iteration" if config.cb == 1 else f"every {config.cb} iterations"
    words = f"Each scatters its {config.scatter} to {len(made.out_of(0))} peers {often}."
    if len(made.parts) > 1:
        words += f" They are {len(made.parts)} separate groups: no news goes from one to another."
    steady = config.wait and config.scatter == "parameters"
    left = rate(made.weights) if steady else None
    stands = None if config.wait else ()
    return peers(made, words, every=config.cb, synchronous=config.wait, rate=left, stands=stands)


def _graph(exp: Experiment, config: Config) -> Graph:
    from workbench.gossip.graphs import NAMED, halton

    if config.dataflow == "halton":
        return halton(exp.ranks, config.peers)
    return NAMED[config.dataflow](exp.ranks)


def train(job: Job, config: Config) -> None:
    from workbench.batches import partition
    from workbench.gossip.scatter import Scatter
    from workbench.gossip.start import spread_out
    from workbench.parameter_servers.flat import Flat

    graph = _graph(job.exp, config)
    if config.wait:
        job.lead = config.cb * (1 + max(graph.distances()))
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    whole = config.scatter == "parameters"
    shared = Scatter(job, graph, flat.values_N, whole=whole, wait=config.wait)
    for step in job.steps():
        mine = partition(step.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        loss = job.forward(model, job.load(mine if len(mine) else step.ids[:1]))
        # A gradient counts by its samples, so that the mean of all is the minibatch's.
        job.backward(loss, weight=len(mine) * job.ranks / len(step.ids))
        job.update(optimizer)
        if (step.iteration + 1) % config.cb == 0:
            shared.send()
            shared.average()
        job.sketch(model)
        job.report(loss, len(mine))
    shared.end()
    job.finish(model, average=True)
