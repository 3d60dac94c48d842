"""A parameter server: the first ranks hold the parameters, the others compute gradients.

A worker pulls parameters, computes the gradient of its part of the minibatch and pushes it; a
server updates its shard of the parameters. A consistency policy says when a worker may start its
next iteration: in lockstep (bsp), whenever it likes (asp), at most so far ahead of the slowest
(ssp, dssp).

Papers Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014;
       Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
       NeurIPS 2013; Zhao et al., "Dynamic Stale Synchronous Parallel Distributed Training",
       arXiv 1908.11848.
Law    bsp equals sequential training within rounding; shards do not change it by a bit; when
       iteration c starts under ssp(s), the slowest worker's iteration c - s - 1 is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.errors import SpecError
from workbench.source import Source

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.spec import Experiment


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="parameter_server"``."""

    servers: int = 1  # ranks 0 to servers - 1 serve, the others work
    consistency: str | Source = "bsp"  # when a worker may go on: bsp, asp, ssp, dssp, or your own
    staleness: int = 3  # iterations a worker may be ahead of the slowest (ssp; dssp: at least)
    staleness_max: int = 15  # the same at most (dssp)
    dssp_mode: Literal["strict", "paper"] = "strict"  # the paper's own can exceed the maximum
    placement: Literal["even", "hash"] | tuple[float, ...] = "even"  # or a share for each server
    stale_gradients: Literal["keep", "drop", "scale"] = "keep"  # scale: divided by the staleness
    drop_above: int = 0  # updates that a gradient may have missed before `drop` leaves it out
    shares: tuple[float, ...] | None = None  # of a minibatch, a worker each; left out: equal ones
    models: int = 1  # trained at the same time; worker i trains model i % models, on seed + model

    def __post_init__(self) -> None:
        for name, least in (("servers", 1), ("staleness", 0), ("drop_above", 0), ("models", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: it is {least} or more")
        if self.staleness_max < self.staleness and self.consistency == "dssp":
            raise ValueError(
                f"staleness_max = {self.staleness_max} is less than staleness = {self.staleness}"
            )
        if isinstance(self.placement, tuple):
            if len(self.placement) != self.servers:
                raise ValueError(
                    f"placement gives {len(self.placement)} shares for servers = {self.servers}"
                )
            if min(self.placement) < 0 or abs(sum(self.placement) - 1) > 0.01:
                raise ValueError(
                    f"placement = {list(self.placement)}: shares are 0 or more, and 1 together"
                )
        if self.shares is not None:
            if not self.shares or min(self.shares) < 0 or sum(self.shares) <= 0:
                raise ValueError(f"shares = {list(self.shares)}: they are 0 or more, one above 0")
            if self.models > 1:
                raise ValueError("shares are of one model's minibatches: models = 1")


def check(exp: Experiment, config: Config) -> None:
    """Raises SpecError for what cannot be with so many ranks."""
    workers = exp.ranks - config.servers
    if workers < config.models:
        each = "worker" if config.models == 1 else f"worker for each of {config.models} models"
        raise SpecError(
            f"Experiment.ranks = {exp.ranks} with options.servers = {config.servers} leaves "
            f"{max(workers, 0)} workers: there must be at least one {each}"
        )
    if config.shares is not None and len(config.shares) != workers:
        raise SpecError(
            f"Experiment.options.shares gives {len(config.shares)} shares for {workers} workers"
        )
    if exp.memory_limit is not None:
        raise SpecError(
            f"Experiment.memory_limit = {exp.memory_limit!r}: strategy 'parameter_server' does not "
            "measure what its ranks hold; leave it out"
        )
    if exp.backend != "workbench":
        raise SpecError(
            f"Experiment.backend = {exp.backend!r}: strategy 'parameter_server' runs over "
            "backend='workbench'"
        )


def train(job: Job, config: Config) -> None:
    from workbench.parameter_servers.server import Server
    from workbench.parameter_servers.worker import Worker

    (Server if job.rank < config.servers else Worker)(job, config).run()
