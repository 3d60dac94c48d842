"""Validation through a pipeline: samples pass forward through the stages of the first replica."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from workbench.rank.job import Job
from workbench.rank.validation import VALIDATION_BATCH
from workbench.training.pipelines.loss_stub import answering, arguments
from workbench.training.pipelines.relay import Relay
from workbench.training.pipelines.schedule import Action
from workbench.training.pipelines.stage import Stage


@torch.no_grad()
def validate(
    job: Job, stages: Mapping[int, Stage], relay: Relay, model: torch.nn.Module, *, speaks: bool
) -> None:
    """Compute the task's metrics over the validation samples, on the rank of the last stage.

    ``stages``: those of this rank. ``model``: the whole one, for the names of its arguments.
    ``speaks``: this rank's pipeline records the metrics.
    """
    if not hasattr(job.task, "metrics"):
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
            output = stage.module(*(arguments(job.task, model, batch) if index == 0 else values))
            if index < last:
                relay.give(action, output, len(ids))
                continue
            for name, value in job.task.metrics(answering(output), batch).items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(ids) / count
    relay.flush()
    if sums:
        job.metrics = sums
        if speaks:
            job.record_metrics(sums, "validation")
