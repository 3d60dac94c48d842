"""Elephas: workers train the partitions of an RDD, and push what their training has changed.

A worker pulls the parameters, trains on its own partition with an update rule of its own, and
pushes the difference (before minus after) to the server, which subtracts it: once per epoch, or
once per minibatch.

synchronous   all push; the server subtracts the mean of the differences; all pull
asynchronous  each push is subtracted as it comes, one after another; no worker waits
hogwild       the same without a lock: pushes are subtracted at the same time, parameters leave
              while they are written, and an update may be lost

Source Elephas, "Distributed deep learning with Keras and Spark" (Pumperla and others),
       github.com/maxpumperla/elephas; its modes and frequencies, not its code.
       Recht et al., "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent",
       NeurIPS 2011.
Law    Each row of each partition is trained once per epoch, by its partition's worker. synchronous
       equals the mean of differences computed one partition after another, within rounding.
       asynchronous: each push is subtracted once, and updates never overlap.
Differs A partition that is not larger than a minibatch trains here, and nothing there. Elephas's
       synchronous mode is one job of Spark, in which each partition trains all epochs by itself and
       the differences are combined once: one after another by an optimizer (commit 0040501, 2015),
       or as their sum (b05b32d, for TensorFlow 2). Here workers stay, and the server subtracts the
       mean after every round.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from workbench.common import environment
from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits
from workbench.user_code.source import Source, load, split_path

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job


TRAITS = Traits(
    title="Elephas",
    replicas="served",
    update="asynchronous",
    messages="servers",
    serves="parameters",
    way=("mode", "frequency"),
    rows="rows",
    scene="server",
)
POLICIES = {"synchronous": "bsp", "asynchronous": "asp", "hogwild": "asp"}  # by mode
WITHOUT = ("memory_limit", "checkpoint", "scale_batch", "shuffle_buffer")  # fields of an Experiment


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="elephas"``."""

    mode: Literal["synchronous", "asynchronous", "hogwild"] = "asynchronous"  # how workers wait
    frequency: Literal["epoch", "batch"] = "epoch"  # how often a worker pulls and pushes
    rows: str | Source = ""  # rows(spark) or a table of Spark's; left out: the task's, in parts


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for options that do not fit the experiment."""
    workers = exp.ranks - 1
    if workers < 1:
        raise SpecError.at("ranks", "rank 0 is the server, the others work: 2 or more", exp.ranks)
    if exp.batch_size < workers:
        raise SpecError.at(
            "batch_size",
            f"is divided by {workers} workers, and each takes a row at least: {workers} or more",
            exp.batch_size,
        )
    if exp.backend != "workbench":
        why = "strategy 'elephas' runs over backend='workbench'"
        raise SpecError.at("backend", why, exp.backend)
    for name in WITHOUT:
        if value := getattr(exp, name):
            raise SpecError.at(name, "does not go with strategy 'elephas': leave it out", value)
    if is_table(config.rows) and exp.launcher != "spark":
        raise SpecError.at(
            "options.rows",
            f"names a table of a Spark session, and launcher={exp.launcher!r} has none: take "
            "launcher='spark', or give a function rows(spark), which is called with None here and "
            "returns a list of partitions",
            config.rows,
        )


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Raise SpecError where workers would not find their partitions, before any starts."""
    from workbench.rank.partition_rows import columns_of, partitions_of
    from workbench.training.parameter_servers.clocks import RULE, rule_of

    if config.mode == "hogwild" and environment.text("WORKBENCH_VERIFY") == "1":
        raise SpecError.at(
            "options.mode",
            "parameters are written while they are sent, so that no checksum fits: unset "
            "WORKBENCH_VERIFY",
            config.mode,
        )
    if config.rows and exp.launcher != "spark":
        for number, rows in enumerate(partitions_of(load("rows", config.rows, ""), exp.ranks - 1)):
            columns_of(rows, number)
    return {RULE: json.dumps(rule_of(POLICIES[config.mode], {})), **_facts(config)}


def _facts(config: Config) -> dict[str, str]:
    """Return what pages draw of its server, beside what holds of any."""
    facts = {
        "consistency": POLICIES[config.mode],
        "pushes": "weight difference",
        "mode": config.mode,
        "once_per": "minibatch" if config.frequency == "batch" else "epoch",
        "words": "differences of partitions",
    }
    return {"server": json.dumps(facts)}


def is_table(rows: str | Source) -> bool:
    """Return whether ``rows`` names a table or a view of a Spark session."""
    return isinstance(rows, str) and bool(rows) and split_path(rows) is None


def train(job: Job, config: Config) -> None:
    from workbench.training.elephas.partition import partition_of
    from workbench.training.elephas.rounds import agree
    from workbench.training.elephas.server import ElephasServer
    from workbench.training.elephas.worker import ElephasWorker

    mine: Any = partition_of(job, config.rows) if job.rank else ()
    rounds, consistency = agree(job, len(mine), config.frequency), POLICIES[config.mode]
    if job.rank:
        ElephasWorker(job, config.mode, consistency, rounds, mine).run()
    else:
        ElephasServer(job, config.mode, consistency, rounds).run()
