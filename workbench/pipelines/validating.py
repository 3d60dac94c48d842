"""Validation through a pipeline: samples go through the stages of the first replica, forward."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from workbench.job import Job
from workbench.pipelines.relay import Relay
from workbench.pipelines.schedule import Action
from workbench.pipelines.stage import Stage
from workbench.pipelines.standin import answering, arguments
from workbench.validation import VALIDATION_BATCH


@torch.no_grad()
def validate(job: Job, stages: Mapping[int, Stage], relay: Relay, model: torch.nn.Module) -> None:
    """The task's metrics, means over the validation samples; the rank of the last stage has them.

    ``stages``: those of this rank. ``model``: the whole one, for the names of its arguments.
    """
    if not hasattr(job.task, "metrics") or job.replica:
        return
    dataset = job.task.dataset("validation")
    count, last = len(dataset), len(relay.rank_of) - 1
    sums: dict[str, float] = {}
    for stage in stages.values():
        stage.module.eval()
    for number, start in enumerate(range(0, count, VALIDATION_BATCH)):
        ids = np.arange(start, min(start + VALIDATION_BATCH, count))
        for index, stage in stages.items():
            batch = job.batch(dataset, ids) if index in (0, last) else None
            action = Action(index, "F", number)
            values = relay.take(action, len(ids))
            given = stage.module(*(arguments(job.task, model, batch) if index == 0 else values))
            if index < last:
                relay.give(action, given, len(ids))
                continue
            for name, value in job.task.metrics(answering(given), batch).items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(ids) / count
    relay.flush()
    if sums:
        job.metrics = sums
        job.record_metrics(sums, "validation")
