"""1F1B, recording on, against torch's own plain schedule: the same stages, samples and updates."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import workbench as wb
from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks
from workbench.experiment.configure import configure
from workbench.process_group.session import session
from workbench.rank.batches import Minibatch
from workbench.rank.job import Job
from workbench.shared_memory.control_block import Control
from workbench.strategies.pipeline import Config
from workbench.training.pipelines.loss_stub import answering, arguments
from workbench.training.pipelines.pipeline import Pipeline
from workbench.training.pipelines.schedule import build
from workbench.user_code.source import load

MICROBATCHES, OF_SAMPLES, ROUNDS, WARM_UP = 8, 8, 40, 4
TARGETS = {2: 1.05, 4: 1.05}  # times torch's seconds an iteration, by ranks


def experiment(ranks: int) -> wb.Experiment:
    """Some 100 ms an iteration on two cores."""
    return wb.Experiment(
        strategy="pipeline",
        options={"schedule": "1f1b", "microbatches": MICROBATCHES},
        task="char_transformer",
        task_options={"layers": 4, "width": 128},
        ranks=ranks,
        batch_size=MICROBATCHES * OF_SAMPLES,
        iterations=ROUNDS + WARM_UP,
        threads=1,
    )


class Turns(Job):
    """A job that lets others have a turn between its own iterations, and times all of them."""

    others: dict[str, Callable[[Minibatch], None]]
    gloo: Any

    def iterations(self) -> Iterator[Minibatch]:
        self.seconds: dict[str, list[float]] = {name: [] for name in ("ours", *self.others)}
        for step in super().iterations():
            dist.barrier(group=self.gloo)
            start = time.perf_counter()
            yield step
            self.seconds["ours"].append(time.perf_counter() - start)
            for name, iterate in self.others.items():
                dist.barrier(group=self.gloo)
                start = time.perf_counter()
                iterate(step)
                self.seconds[name].append(time.perf_counter() - start)


class Torchs:
    """PipelineStage and Schedule1F1B around a copy of the same stage, over one group."""

    def __init__(self, pipeline: Pipeline, group: Any) -> None:
        self.pipeline, self.job = pipeline, pipeline.job
        [(index, stage)] = pipeline.stages.items()
        module = copy.deepcopy(stage.module)
        self.last = index == pipeline.schedule.stages - 1
        self.first, self.losses = index == 0, list[torch.Tensor]()
        self.optimizer = self.job.optimizer(module)
        plain = PipelineStage(module, index, pipeline.schedule.stages, self.job.device, group=group)
        self.schedule = Schedule1F1B(plain, pipeline.microbatches, loss_fn=self._loss)

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        whole = answering(output)
        loss: torch.Tensor = self.job.task.loss(whole, [None, target])
        return loss

    def __call__(self, minibatch: Minibatch) -> None:
        """One iteration, with what a plain training loop does around it."""
        batch = self.job.batch(self.job.train, minibatch.ids) if self.first or self.last else None
        args = arguments(self.job.task, self.pipeline.hollow.model, batch) if self.first else ()
        losses: list[torch.Tensor] = []
        self.schedule.step(
            *args, target=batch[1] if self.last else None, losses=losses, return_outputs=False
        )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses += [torch.stack(losses).mean().detach()] if losses else []


def time_turns(rank: int, n: int, gloo: Any) -> dict[str, float]:
    """Median seconds an iteration of each; of the rank where that is longest."""
    exp = experiment(n)
    task = load("tasks", exp.task, "Task")(**exp.task_options)
    job = Turns(exp, task, rank, session(), Control.create(n))
    config = configure(Config, exp.options)
    job.gloo = gloo
    ours = Pipeline(job, config, build("1f1b", ranks=n, microbatches=MICROBATCHES))
    job.others = {"torch": Torchs(ours, gloo), "torch over ours": Torchs(ours, dist.group.WORLD)}
    ours.run()
    medians = [statistics.median(times[WARM_UP:]) for times in job.seconds.values()]
    if rank == n - 1:
        for name, each in job.others.items():
            gap = max(abs(a - float(b)) for a, b in zip(job.losses, each.losses, strict=True))
            assert gap < 1e-4, f"{name} trains something else: losses differ by {gap}"
    worst = torch.tensor(medians, dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=gloo)
    return dict(zip(job.seconds, worst.tolist(), strict=True))


def measure() -> list[Figure]:
    figures = []
    for n, target in TARGETS.items():
        times = on_ranks(n, time_turns)
        detail = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items())
        for other in ("torch", "torch over ours"):
            ratio = times["ours"] / times[other]
            words = f"1F1B, {n} stages, of {other}'s time"
            figures.append(Figure(words, ratio, target, "×", False, detail))
        run = wb.run(experiment(n))
        run.wait(120)
        share = run.overhead().share * 100
        figures.append(Figure(f"recording, {n} stages", share, 1, "% of the step", False))
    return figures
