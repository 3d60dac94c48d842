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

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits
from workbench.user_code.source import Source

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job


TRAITS = Traits(
    replicas="served",
    update="asynchronous",
    recovers="any",
    skips="own share",
    messages="servers",
    serves="parameters",
    way=("consistency",),
    scene="server",
    idle=(
        ("staleness", "consistency", ("bsp", "asp")),
        ("staleness_max", "consistency", ("bsp", "asp", "ssp")),
        ("dssp_mode", "consistency", ("bsp", "asp", "ssp")),
        ("stale_gradients", "consistency", ("bsp",)),
        ("drop_above", "stale_gradients", ("keep", "scale")),
        ("restored_from", "recovery", ("abort", "restart")),
    ),
)


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
    replicas: int = 1  # of each key: 2, and a lost server's keys are whole in the next server
    restored_from: Literal["pull", "checkpoint"] = "pull"  # keys of which no replica is left
    models: int = 1  # trained at the same time; worker i trains model i % models, on seed + model

    def __post_init__(self) -> None:
        least_of = {"servers": 1, "staleness": 0, "drop_above": 0, "models": 1, "replicas": 1}
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise SpecError.at(name, f"must be {least} or more", getattr(self, name))
        if self.staleness_max < self.staleness and self.consistency == "dssp":
            less = f"is less than staleness = {self.staleness}"
            raise SpecError.at("staleness_max", less, self.staleness_max)
        if self.replicas > self.servers:
            why = f"each key is on that many servers, and there are only servers = {self.servers}"
            raise SpecError.at("replicas", why, self.replicas)
        if self.replicas > 1 and self.models > 1:
            raise SpecError.at("replicas", "belong to one model's keys: models = 1", self.replicas)
        if isinstance(self.placement, tuple):
            from workbench.training.parameter_servers.placement import check_shares

            check_shares(self.placement, self.servers)
        if self.shares is not None:
            if not self.shares or min(self.shares) < 0 or sum(self.shares) <= 0:
                why = "must be 0 or more each, and one above 0"
                raise SpecError.at("shares", why, list(self.shares))
            if self.models > 1:
                raise SpecError.at("shares", "belong to one model's minibatches: models = 1")


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for options that do not fit the number of ranks."""
    workers = exp.ranks - config.servers
    if workers < config.models:
        each = "worker" if config.models == 1 else f"worker for each of {config.models} models"
        raise SpecError.at(
            "ranks",
            f"options.servers = {config.servers} leaves {max(workers, 0)} workers: there must be "
            f"at least one {each}",
            exp.ranks,
        )
    if config.shares is not None and len(config.shares) != workers:
        raise SpecError.at(
            "options.shares", f"gives {len(config.shares)} shares for {workers} workers"
        )
    if config.restored_from == "checkpoint" and exp.checkpoint is None:
        raise SpecError.at(
            "options.restored_from",
            "this experiment writes no checkpoints: add "
            'checkpoint=wb.Checkpoint(folder="checkpoints", every=20), or take "pull"',
            config.restored_from,
        )
    if exp.scale_batch:
        raise SpecError.at(
            "scale_batch",
            "does not go with parameter_server: its servers know minibatches of one size only. "
            "Leave it out",
            True,
        )
    if exp.backend != "workbench":
        raise SpecError.at(
            "backend", "strategy 'parameter_server' runs over backend='workbench'", exp.backend
        )


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Return the policy's rule, for pages and laws; this runs a user's policy code."""
    from workbench.training.parameter_servers.clocks import RULE, policy_options, rule_of

    return {RULE: json.dumps(rule_of(config.consistency, policy_options(config, exp.options)))}


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Raise SpecError where a lost rank's part of the work cannot be given to others."""
    if config.models > 1:
        raise SpecError.at(
            "models", "ranks take over a lost one's part of one model only: 1", config.models
        )
    if config.shares is not None and not same_ranks:
        raise SpecError.at(
            "shares",
            "are given a worker each, and one may be lost: leave them out, or take "
            "recovery='replace'",
            list(config.shares),
        )


def missing_role(config: Config, ranks: int, members: Collection[int]) -> str:
    """Return "server" or "worker" where none of these ranks of the run is one; "" otherwise."""
    serving = [rank for rank in members if rank < config.servers]
    return "server" if not serving else "worker" if len(serving) == len(members) else ""


def train(job: Job, config: Config) -> None:
    from workbench.training.parameter_servers.memory import ServerMemory
    from workbench.training.parameter_servers.server import Server
    from workbench.training.parameter_servers.worker import Worker

    serves = job.run_rank < config.servers
    if serves and job.memory is not None:
        limit = job.exp.memory_limit_bytes
        job.memory = ServerMemory(job.run_rank, limit, job.recorder)
    (Server if serves else Worker)(job, config).run()
