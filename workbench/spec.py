"""What to run, as data: frozen, checked before any process starts, equal to its YAML.

    exp = Experiment(strategy="data_parallel", task="lenet_digits", ranks=4, network=Network(
        latency="1 ms", links={(0, 1): Link(bandwidth="100 Mbit/s")}))
    Experiment.from_yaml(exp.to_yaml()) == exp

Every field says its unit and its effect. What cannot be is refused by the constructor with a
SpecError: the field, the value, what is allowed, and for an unknown name the nearest ones. Checking
reads code of the user's (a path, a Source), it never runs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from workbench import units
from workbench.errors import SpecError
from workbench.record import (
    Count,
    Duration,
    Fixed,
    Float,
    Int,
    Options,
    Positive,
    Record,
    Size,
    as_code,
    short,
)
from workbench.source import Source, listed
from workbench.spec_checks import (
    check_algorithm,
    check_device,
    check_faults,
    check_options,
    check_pads,
    check_ranks,
    known,
)
from workbench.spec_faults import Fault, Freeze, Jitter, Kill, Pad, Pads, Slow
from workbench.spec_network import Link, Network
from workbench.spec_yaml import Dumper, beside, code_in, parse, read

__all__ = [
    "Experiment",
    "Fault",
    "Freeze",
    "Jitter",
    "Kill",
    "Link",
    "Network",
    "Pads",
    "Slow",
]

LARGEST_CHUNK = 64 * 2**20
_ALWAYS_WRITTEN = ("strategy", "task", "ranks", "iterations", "batch_size", "seed")

Code = Annotated[str | Source, BeforeValidator(as_code)]


class Experiment(Record):
    """What to run. See each field; ``wb.run(experiment)`` runs it."""

    strategy: Annotated[Code, known("strategies")] = Field(
        default="data_parallel",
        description="how training is distributed: a file of strategies/, a path, or your function",
    )
    task: Annotated[Code, known("tasks")] = Field(
        default="lenet_digits",
        description="model, data and loss: a file of tasks/, a path, or your class",
    )
    task_options: Options = Field(
        default_factory=Fixed, description="keywords that the task is made with"
    )
    ranks: Int = Field(default=4, ge=1, description="number of processes")
    iterations: Int = Field(
        default=200, ge=1, description="updates of the parameters, by each worker"
    )
    batch_size: Int = Field(
        default=64, ge=1, description="samples of a whole minibatch, over all workers"
    )
    seed: Int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="fixes initial parameters, split and order of the samples",
    )
    optimizer: Literal["sgd", "adam"] = Field(default="sgd", description="update rule")
    lr: Positive | None = Field(
        default=None, description="learning rate; left out: 0.1 for sgd, 0.001 for adam"
    )
    warmup: Int = Field(
        default=0,
        ge=0,
        description="updates at first over which the learning rate grows to its own; 0 is none",
    )
    reference_batch: Count | None = Field(
        default=None,
        description="samples of the minibatch that lr is for: it grows in proportion with "
        "batch_size; left out: lr is as it stands",
    )
    momentum: Float = Field(default=0.0, ge=0, lt=1, description="of sgd; 0 is none")
    dtype: Literal["float32", "float64"] = Field(
        default="float32",
        description="of parameters and data; float64 where equality is the subject",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="auto (a GPU where there is one), cpu, cuda, or one GPU such as cuda:0",
    )
    threads: Count | None = Field(
        default=None,
        description="computing threads of each rank; left out: cores // ranks, at least 1",
    )
    bind: bool = Field(
        default=False,
        description="each rank keeps to cores of its own, as many as it has threads; left out: the "
        "system moves ranks about",
    )
    memory_limit: Size | None = Field(
        default=None, description="of each rank, such as '200 MB'; left out: none"
    )
    all_reduce: Annotated[Code, known("collectives", "all_reduce_", ("auto",))] = Field(
        default="ring",
        description="a file collectives/all_reduce_*.py, auto (the fastest by size: wb.why), "
        "a path, or your function",
    )
    chunk_bytes: Int = Field(
        default=262_144,
        ge=64,
        le=LARGEST_CHUNK,
        multiple_of=64,
        description="bytes of a transport's piece of a chunk: smaller shows more, costs more",
    )
    backend: Literal["workbench", "gloo", "nccl"] = Field(
        default="workbench",
        description="gloo and nccl for comparison: operations are recorded, not chunks",
    )
    network: Network = Field(
        default=Network(), description="emulated latency and bandwidth of links"
    )
    pad_compute: Pad | None = Field(
        default=None,
        description="least duration of an iteration's computing, such as '20 ms'; in a pipeline of "
        "each F, I and W of a microbatch, or Pads",
    )
    faults: Annotated[
        tuple[Fault, ...],
        BeforeValidator(lambda value: (value,) if isinstance(value, Record) else value),
    ] = Field(default=(), description="what goes wrong on purpose: Kill, Freeze, Slow, Jitter")
    timeout: Duration = Field(default="30 s", description="no progress for this long is an error")
    record: bool = Field(default=True, description="whether events are recorded")
    options: Options = Field(
        default_factory=Fixed, description="the strategy's own, see its Config"
    )

    @property
    def learning_rate(self) -> float:
        """``lr``, or the optimizer's default: 0.1 for sgd, 0.001 for adam; scaled to the minibatch
        where there is a ``reference_batch``.
        """
        return self._given_rate * self.batch_size / (self.reference_batch or self.batch_size)

    @property
    def _given_rate(self) -> float:
        return self.lr if self.lr is not None else {"sgd": 0.1, "adam": 1e-3}[self.optimizer]

    def rate_at(self, update: int) -> float:
        """The learning rate of an update, from 0: it grows by equal amounts to ``learning_rate`` at
        update ``warmup``, from ``lr`` where that is scaled, else from a warmup-th of it.

        Paper  Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv
               1706.02677, 2017: the linear scaling rule, and gradual warm-up.
        """
        whole = self.learning_rate
        if update >= self.warmup:
            return whole
        first = whole / self.warmup if self.reference_batch is None else self._given_rate
        return whole - (whole - min(first, whole)) * (1 - update / self.warmup)

    @property
    def timeout_ns(self) -> int:
        """``timeout`` in nanoseconds."""
        return units.duration_ns(self.timeout)

    @property
    def pad_compute_ns(self) -> int | None:
        """Of an iteration's computing; None where there is none, or it is given as Pads."""
        given = isinstance(self.pad_compute, str)
        return units.duration_ns(self.pad_compute) if given else None

    @property
    def pads_ns(self) -> tuple[int, int, int] | None:
        """(F, I, W) of a microbatch on a stage of a pipeline; a plain duration is that of each."""
        match self.pad_compute:
            case None:
                return None
            case Pads() as pads:
                return pads.ns
            case duration:
                return (units.duration_ns(duration),) * 3

    @property
    def memory_limit_bytes(self) -> int | None:
        """``memory_limit`` in bytes."""
        return None if self.memory_limit is None else units.size_bytes(self.memory_limit)

    @property
    def carries_code(self) -> tuple[str, ...]:
        """Fields that hold code of the user's own, as source or as a path to it."""
        return tuple(code_in({name: getattr(self, name) for name in type(self).model_fields}))

    def replace(self, **changes: Any) -> Experiment:
        """The same but for ``changes``, checked anew: exp.replace(ranks=8)."""
        return Experiment(
            **{**{name: getattr(self, name) for name in self.model_fields_set}, **changes}
        )

    # What cannot be, beyond single fields

    @model_validator(mode="before")
    @classmethod
    def _task_object(cls, values: Any) -> Any:
        """A task given as an object of a dataclass: its class, and its fields as options."""
        task = values.get("task") if isinstance(values, Mapping) else None
        if callable(task) or isinstance(task, Source) or type(task).__module__ == "builtins":
            return values
        name, fields = type(task).__name__, getattr(task, "__dict__", {})
        if dataclasses.is_dataclass(task):
            fields = {
                one.name: getattr(task, one.name) for one in dataclasses.fields(task) if one.init
            }
        elif fields:
            raise SpecError(
                f"Experiment.task = {short(task)}: an object's state ({listed(fields)}) does not "
                f"travel. Pass the class, task={name}, and what it is made with as task_options"
            )
        if fields and values.get("task_options"):
            raise SpecError(
                f"Experiment.task is an object with values of its own ({listed(fields)}), and "
                f"task_options gives more: pass the class, task={name}, and all as task_options"
            )
        return {**values, "task": type(task), **({"task_options": fields} if fields else {})}

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        for check in (
            check_ranks, check_algorithm, check_faults, check_device, check_pads, check_options,
        ):  # fmt: skip
            check(self)
        return self

    # YAML and JSON

    def to_yaml(self, path: str | Path | None = None) -> str:
        """The YAML text: the main fields and what is not default. Also written to ``path``."""
        whole, fields = self.model_dump(mode="json"), type(self).model_fields
        changed = {
            name
            for name, field in fields.items()
            if getattr(self, name) != field.get_default(call_default_factory=True)
        }
        data = {name: whole[name] for name in fields if name in {*_ALWAYS_WRITTEN, *changed}}
        if "network" in data:
            told = self.network.model_dump(mode="json", exclude_defaults=True)
            if not self.network.links:
                told.pop("links", None)
            data["network"] = told
        text = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_yaml(cls, path_or_text: str | Path, allow_code: bool = False) -> Experiment:
        """An Experiment from a YAML file, or from its text (``path_or_text``).

        Code in it (source, or a path to a file) is refused unless ``allow_code``: to run such a
        spec is to run that code. Raises SpecError.
        """
        text, folder = read(path_or_text)
        data = parse(text)
        if not isinstance(data, dict):
            raise SpecError(
                f"{short(path_or_text)} is neither a file nor an experiment's YAML: expected lines "
                "such as `strategy: data_parallel`"
            )
        fields = code_in(data)
        if not allow_code and (carrying := list(fields)):
            raise SpecError(
                f"this spec carries its author's code in {listed(carrying)}, and to run it is "
                "to run that code. If you trust it: from_yaml(..., allow_code=True) or --allow-code"
            )
        named = {key if isinstance(key, str) else short(key): data[key] for key in data}
        return cls(**beside(named, folder))

    def to_json(self) -> str:
        """Everything, for another process: paths to code are absolute in it."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**beside(values, Path.cwd(), always=True)).model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Experiment:
        """The Experiment that ``to_json`` wrote as ``text``. Code in it is trusted: take it from
        your own process only.
        """
        return cls.model_validate(TypeAdapter(dict[str, Any]).validate_json(text))
