"""MALT: every few iterations a rank scatters to a few peers, and combines what has arrived.

A rank trains for itself. Every ``cb`` iterations it sends what has changed in its replica since the
start, by its own training and by what it took in from others, to a few peers; then it takes the
mean of its own change and of those that have come since the last time, and goes on from there. As a
message holds what its sender took in, every rank's news reaches every rank, in as many scatters as
the graph has hops between them (training/gossip/scatter.py has a case worked out). A rank does not
wait, unless configured to.

Paper   Li, Kadav, Kruus & Ungureanu, "MALT: Distributed Data-Parallelism for Existing ML
        Applications", EuroSys 2015. There a receiver has a queue for each sender and a newer
        message overwrites the oldest; here a sender leaves a peer out that has not taken its last
        message, and a newer message replaces an older one: both are counted (``missed``). Not
        here: one-sided writes (RDMA), sparse vectors.
Cost    peers·L bytes per rank every cb iterations, so peers/(p-1)/cb of all to all in each one.
Law     Halton's offsets n/2, n/4, 3n/4, ... are taken until they and n have no divisor in common:
        the first ⌈lg n⌉ alone can leave ranks apart. Over the graph that results, news of a rank is
        in every replica after at most its diameter in scatters, and without gradients replicas
        converge to their mean. Waiting, every iteration, all to all, with SGD: data parallel within
        rounding. With ``bound`` s, scatter k uses a message k - s or newer of every peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits
from workbench.user_code.source import Source, split_path

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph

TRAITS = Traits(
    title="MALT",
    replicas="own",
    update="asynchronous",
    recovers="any",
    skips="own share",
    messages="neighbors",
    scene="peers",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="malt"``."""

    cb: int = 5  # iterations between two scatters (communication batch): larger sends less
    dataflow: Literal["halton", "ring", "complete"] = "halton"  # complete: all to all
    peers: int = 0  # offsets of Halton's sequence; 0: as many as connect all ranks
    scatter: Literal["updates", "parameters"] = "updates"  # changes since the start, or all of it
    wait: bool = False  # for a message of every peer at each scatter: bulk synchronous (BSP)
    bound: int = 0  # scatters that a peer may be behind where a rank waits: stale synchronous (SSP)
    gather: str | Source = "average"  # or your own gather(mine_N, theirs), theirs by rank
    spread: float = 0.0  # deviation of noise on each rank's first parameters, to see them agree

    def __post_init__(self) -> None:
        for name, least in (("cb", 1), ("peers", 0), ("bound", 0), ("spread", 0)):
            if getattr(self, name) < least:
                raise SpecError.at(name, f"must be {least} or more", getattr(self, name))
        if self.peers and self.dataflow != "halton":
            why = f"belongs to dataflow = 'halton', not to {self.dataflow!r}"
            raise SpecError.at("peers", why, self.peers)
        if self.bound and not self.wait:
            why = "bounds how far a rank runs ahead of its peers, so it must wait: wait = true"
            raise SpecError.at("bound", why, self.bound)
        if (
            isinstance(self.gather, str)
            and self.gather != "average"
            and not split_path(self.gather)
        ):
            why = "must be 'average', or a function gather(mine_N, theirs): itself, or its path"
            raise SpecError.at("gather", why, self.gather)


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
    from workbench.training.gossip.scatter import gather_of
    from workbench.training.gossip.theory import rate

    mean = gather_of(config.gather) is None
    result = _graph(exp.ranks, config)
    often = "every iteration" if config.cb == 1 else f"every {config.cb} iterations"
    words = f"Each scatters its {config.scatter} to {len(result.out_of(0))} peers {often}."
    if len(result.parts) > 1:
        words += f" They are {len(result.parts)} separate groups: no news goes from one to another."
    if config.bound:
        words += f" A peer's newest message is at most {config.bound} scatters behind."
    in_step = config.wait and not config.bound
    # Updates leave replicas as far apart as they began.
    steady = in_step and mean and (config.scatter == "parameters" or not config.spread)
    left = rate(result.weights) if steady else None
    stands = None if config.wait else ()
    return peers(result, words, every=config.cb, synchronous=in_step, rate=left, stands=stands)


def _graph(ranks: int, config: Config) -> Graph:
    from workbench.training.gossip.graphs import NAMED, halton

    if config.dataflow == "halton":
        return halton(ranks, min(config.peers, ranks - 1))
    return NAMED[config.dataflow](ranks)


def train(job: Job, config: Config) -> None:
    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.training.gossip.scatter import Scatter, gather_of
    from workbench.training.gossip.start import spread_out
    from workbench.training.parameter_servers.flat import Flat

    graph = _graph(job.ranks, config)
    if config.wait:
        job.lead = config.cb * (1 + (1 + config.bound) * max(graph.distances()))
    model = job.model()
    flat = Flat(model)
    spread_out(flat, config.spread, job.seed, job.rank)
    optimizer = job.optimizer(model)
    shared = Scatter(
        job,
        graph,
        flat.values_N,
        whole=config.scatter == "parameters",
        bound=config.bound if config.wait else None,
        gather=gather_of(config.gather),
    )
    job.keep("first parameters", shared.start_N)
    job.checkpoints.meets = not config.wait or config.bound > 0
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        flat.grads_N.zero_()
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            # A gradient counts by its samples, so that the mean of all is the minibatch's.
            job.backward(loss, weight=len(mine) * job.ranks / len(minibatch.ids))
        if not attempt.skipped:
            job.report(loss, len(mine))
            job.update(optimizer)
        if (minibatch.iteration + 1) % config.cb == 0:
            shared.send()
            shared.combine()
        job.sketch(model)
    shared.end()
    job.finish(model, average=True)
