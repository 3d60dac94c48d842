"""Models cut into stages: ``wb.split`` shows it; training takes the parts from here.

wb.split("char_transformer", stages=4)     traced, measured, cut where the slowest stage is fastest
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch.utils.data import default_collate

from workbench.common.arguments import Count, Counts, Cuts, Share, Size, Stages, checked
from workbench.common.errors import SpecError
from workbench.common.units import size_bytes
from workbench.experiment.optimizers import states
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import traits_of
from workbench.rank.placement import in_dtype, need_samples
from workbench.training.pipelines.loss_stub import answering, arguments
from workbench.training.splitting.cut import Costs, Cut, brief, choose, memories
from workbench.training.splitting.facts import model_facts
from workbench.training.splitting.layers import Layer
from workbench.training.splitting.measuring import measure
from workbench.training.splitting.profiled import LayerCost, Profile
from workbench.training.splitting.sliced import hollow, shapes, slice_module, stage_module
from workbench.training.splitting.traced import Traced, trace
from workbench.user_code.source import load

__all__ = [
    "Cut",
    "Layer",
    "LayerCost",
    "Profile",
    "Split",
    "Traced",
    "choose",
    "hollow",
    "measure",
    "model_facts",
    "shapes",
    "slice_module",
    "split",
    "stage_module",
    "trace",
]


@dataclass(frozen=True)
class Split:
    """A model's layers as they were measured, where it is cut, and what each stage then takes."""

    profile: Profile
    cut: Cut
    microbatch: int  # samples
    peaks: tuple[int, ...]  # most microbatches in flight, by stage
    memory: tuple[int, ...]  # bytes of each stage: with gradients, optimizer state, activations

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for the page's run.model."""
        return model_facts(self.profile, self.cut)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row per stage for display; ``HEADINGS`` are above."""
        rows: list[tuple[str, ...]] = []
        for stage in range(self.cut.stages):
            first, last = self.cut.layers_of(stage)
            layers = self.profile.layers[first : last + 1]
            end = stage == self.cut.stages - 1
            crossing = () if end else self.profile.crossing(last)
            rows.append(
                (
                    str(stage),
                    " .. ".join(dict.fromkeys((_called(layers[0]), _called(layers[-1])))),
                    str(len(layers)),
                    brief(sum(layer.parameters for layer in layers)),
                    f"{sum(layer.forward_s for layer in layers) * 1e3:.3f} ms",
                    f"{sum(layer.backward_s for layer in layers) * 1e3:.3f} ms",
                    brief(self.profile.held(first, last)),
                    brief(self.memory[stage]),
                    "" if end else brief(sum(value.nbytes for value in crossing)),
                )
            )
        return rows

    @property
    def verdict(self) -> str:
        """The slowest stage, against a cut into equal numbers of layers."""
        chosen, equal = self.cut.largest_s, self.cut.equal_largest_s
        text = f"microbatch of {self.microbatch}; slowest stage {(chosen or 0) * 1e3:.3f} ms"
        if equal is None:
            return text
        return f"{text} with what it sends; in equal numbers of layers {equal * 1e3:.3f} ms"

    def __str__(self) -> str:
        table = [HEADINGS, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
        lines = (
            "  ".join(
                text.ljust(width) if i == 1 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        )
        return "\n".join((*lines, self.verdict))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the model's picture; outside a notebook, the table."""
        try:
            from workbench.views.jupyter import ModelStage
        except ModuleNotFoundError:
            return {"text/plain": str(self), "text/html": self._repr_html_()}
        from workbench.views.pages.model_page import (
            model_page,  # imported here: ranks import this module and need no page
        )

        page = model_page(self.facts | {"memory": list(self.memory)})
        return ModelStage(page, str(self), self._repr_html_())._repr_mimebundle_(**options)

    def _repr_html_(self) -> str:
        """Return a still picture of the model, and the table."""
        from workbench.front_end.html_picture import image
        from workbench.views.stills.svg_model import svg

        def line(row: Sequence[str], tag: str) -> str:
            cells = (
                f'<{tag} style="text-align:{"left" if i == 1 else "right"}">{escape(text)}</{tag}>'
                for i, text in enumerate(row)
            )
            return f"<tr>{''.join(cells)}</tr>"

        body = "".join(line(row, "td") for row in self.rows())
        return (
            f"{image(svg(self.facts, self.memory, self.verdict), self.verdict)}"
            f"<table><caption>{escape(self.verdict)}</caption>"
            f"<thead>{line(HEADINGS, 'th')}</thead><tbody>{body}</tbody></table>"
        )


HEADINGS = (
    "stage",
    "layers",
    "count",
    "parameters",
    "forward",
    "backward",
    "activations",
    "memory",
    "sends",
)


@checked
def split(
    what: Any,
    stages: Stages | None = None,
    how: Cuts | None = None,
    microbatch: Count | None = None,
    *,
    memory_limit: Size | None = None,
    peaks: Counts | None = None,
    memory_weight: Share | None = None,
) -> Split:
    """Trace, measure and cut a model, here and now; nothing is trained.

    what          an Experiment (its task, seed, dtype, optimizer and memory_limit), a task's name,
                  or a task
    stages        how many; 4, if not given
    how           "auto" (if not given), "layers", or a list of the layers that begin a stage
    microbatch    samples on which the layers are measured; 8, if not given
    memory_limit  of each rank, such as "20 MB"
    peaks         most microbatches in flight, by stage; those of 1F1B, if not given
    memory_weight of "auto": 0, if not given, balances computing, 1 memory, between them both

    What is not given is as an Experiment of stages has it: what it would run is shown. Measures
    with the Experiment's threads, or those that each of ``stages`` ranks would have on this
    machine. Raises SpecError for what cannot be cut so.

    >>> print(wb.split("lenet_digits", stages=3))
    """
    exp = what if isinstance(what, Experiment) else None
    task = _task(what)
    limit = size_bytes(memory_limit) if memory_limit is not None else None
    if exp is not None and limit is None:
        limit = exp.memory_limit_bytes
    rank_of: tuple[int, ...] | None = None
    if exp is not None and "schedule" in traits_of(exp.strategy).way:
        config, schedule = planned(exp)
        if stages in (None, schedule.stages):
            stages, rank_of = schedule.stages, schedule.rank_of
            how, peaks = how or config.split, peaks or schedule.peaks
            memory_weight = config.memory_weight if memory_weight is None else memory_weight
        microbatch = microbatch or -(-exp.batch_size // (config.replicas * config.microbatches))
    stages, how, microbatch = 4 if stages is None else stages, how or "auto", microbatch or 8
    in_flight = tuple(peaks) if peaks is not None else tuple(range(stages, 0, -1))
    if len(in_flight) != stages:
        raise SpecError(f"peaks has {len(in_flight)} numbers for {stages} stages: one for each")
    state = float(states(exp.optimizer, exp.momentum)) if exp is not None else 0.0
    threads = exp.threads if exp is not None else None
    with _threads(threads or max(1, (os.cpu_count() or 1) // stages)):
        profile = _profile(task, exp, microbatch)
    cut = choose(
        profile,
        stages,
        how,
        peaks=in_flight,
        limit_bytes=limit,
        state_factor=state,
        rank_of=rank_of,
        memory_weight=memory_weight or 0.0,
    )
    needs = memories(Costs(profile, state_factor=state), cut.starts, in_flight)
    return Split(profile, cut, microbatch, in_flight, tuple(map(round, needs)))


def _profile(task: Any, exp: Experiment | None, microbatch: int) -> Profile:
    """Trace the task's model and measure its layers on a microbatch, as ``exp`` would run them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(exp.seed if exp is not None else 0)
        model = task.model()
        data = need_samples(task.dataset("train"), "train", task)
        batch = default_collate([data[i] for i in range(min(microbatch, len(data)))])
        if exp is not None:
            dtype = getattr(torch, exp.dtype)
            model = in_dtype(model, dtype, task)
            batch = _as(batch, dtype)
        args = _tensors_only(arguments(task, model, batch))
        return measure(
            trace(model, len(args)), args, loss=lambda output: task.loss(answering(output), batch)
        )


def planned(exp: Experiment) -> tuple[Any, Any]:
    """Return the options and the schedule of an Experiment of stages."""
    from workbench.experiment.configure import config_of
    from workbench.training.pipelines.schedule import build

    config = config_of(exp)
    schedule = build(
        config.schedule,
        ranks=exp.ranks // config.replicas,
        microbatches=config.microbatches,
        stages_per_rank=config.stages_per_rank,
        iterations=exp.iterations,
    )
    return config, schedule


def _called(layer: LayerCost) -> str:
    """Return the layer's name; with its operation if the name is a number (nn.Sequential)."""
    return f"{layer.name} {layer.op}" if layer.name.isdigit() else layer.name


def _tensors_only(args: tuple[Any, ...]) -> tuple[Any, ...]:
    other = [type(a).__name__ for a in args if not isinstance(a, torch.Tensor)]
    if other or not args:
        raise SpecError(
            f"the task's loss calls the model with {', '.join(other) or 'nothing'}: a split model "
            "takes tensors only, as in model(images)"
        )
    return args


def _task(what: Any) -> Any:
    if isinstance(what, Experiment):
        return load("tasks", what.task, "Task")(**what.task_options)
    if isinstance(what, str):
        return load("tasks", what, "Task")()
    if not (hasattr(what, "model") and hasattr(what, "dataset") and hasattr(what, "loss")):
        raise SpecError(
            f"cannot split {what!r}: give an Experiment, the name of a task, or a task with "
            "model(), dataset(split) and loss(model, batch)"
        )
    return what() if inspect.isclass(what) else what


def _as(batch: Any, dtype: torch.dtype) -> Any:
    """Return the batch with its floating tensors in ``dtype``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    if isinstance(batch, dict):
        return {name: _as(value, dtype) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_as(value, dtype) for value in batch]
    return batch


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
