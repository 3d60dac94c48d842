"""MALT: every few iterations a rank scatters its update to a few peers, and averages what came.

A rank trains for itself. Every ``cb`` iterations it sends what its training has changed since the
last time to its peers, which are few and chosen so that news reaches every rank in few hops; then
it takes the mean of its own change and of those that have come by now, and goes on from there. It
does not wait, unless configured to.

Paper   Li, Kadav, Kruus & Ungureanu, "MALT: Distributed Data-Parallelism for Existing ML
        Applications", EuroSys 2015.
Cost    peers·L bytes per rank every cb iterations, so peers/(p-1)/cb of all to all in each one.
Law     Halton's offsets n/2, n/4, 3n/4, ... are taken until they and n have no divisor in common:
        the first ⌈lg n⌉ alone can leave ranks apart. Waiting, every iteration, all to all, with
        SGD: data parallel within rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph

TITLE = "MALT"
CAN_SKIP = True  # a rank leaves its own share of a minibatch out (rank/attempts.py)


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
                raise SpecError.at(name, f"must be {least} or more", getattr(self, name))
        if self.peers and self.dataflow != "halton":
            why = f"belongs to dataflow = 'halton', not to {self.dataflow!r}"
            raise SpecError.at("peers", why, self.peers)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for options that do not fit the number of ranks."""
    if config.peers >= max(exp.ranks, 2):
        raise SpecError.at(
            "options.peers",
            f"{exp.ranks} ranks have {exp.ranks - 1} others each",
            config.peers,
        )
    if exp.backend != "workbench":
        raise SpecError.at("backend", "strategy 'malt' runs over backend='workbench'", exp.backend)


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Refuse nothing: every rank trains for itself, and any of them goes on."""


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.training.gossip.facts import peers
    from workbench.training.gossip.theory import rate

    result = _graph(exp.ranks, config)
    often = "every iteration" if config.cb == 1 else f"every {config.cb} iterations"
    words = f"Each scatters its {config.scatter} to {len(result.out_of(0))} peers {often}."
    if len(result.parts) > 1:
        words += f" They are {len(result.parts)} separate groups: no news goes from one to another."
    steady = config.wait and config.scatter == "parameters"
    left = rate(result.weights) if steady else None
    stands = None if config.wait else ()
    return peers(result, words, every=config.cb, synchronous=config.wait, rate=left, stands=stands)


def _graph(ranks: int, config: Config) -> Graph:
    from workbench.training.gossip.graphs import NAMED, halton

    if config.dataflow == "halton":
        return halton(ranks, min(config.peers, ranks - 1))
    return NAMED[config.dataflow](ranks)


def train(job: Job, config: Config) -> None:
    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.training.gossip.scatter import Scatter
    from workbench.training.gossip.start import spread_out
    from workbench.training.parameter_servers.flat import Flat

    graph = _graph(job.ranks, config)
    job.alone = True
    if config.wait:
        job.lead = config.cb * (1 + max(graph.distances()))
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    whole = config.scatter == "parameters"
    shared = Scatter(job, graph, flat.values_N, whole=whole, wait=config.wait)
    job.keep("last average", shared.base_N)
    job.checkpoints.meets = not config.wait
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        with Attempt(job, minibatch, model, mine, alone=True) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            # A gradient counts by its samples, so that the mean of all is the minibatch's.
            job.backward(loss, weight=len(mine) * job.ranks / len(minibatch.ids))
        if not attempt.skipped:
            job.report(loss, len(mine))
            job.update(optimizer)
        if (minibatch.iteration + 1) % config.cb == 0:
            shared.send()
            shared.average()
        job.sketch(model)
    shared.end()
    job.finish(model, average=True)
