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
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from workbench import units
from workbench.errors import SpecError
from workbench.record import (
    Bandwidth,
    Count,
    Duration,
    Fixed,
    Float,
    Int,
    Options,
    Positive,
    Rank,
    Record,
    Size,
    as_code,
    short,
)
from workbench.source import Source, listed
from workbench.spec_checks import check_device, check_faults, check_options, check_ranks, known
from workbench.spec_yaml import Dumper, beside, code_in, read

LARGEST_CHUNK = 64 * 2**20
_ALWAYS_WRITTEN = ("strategy", "task", "ranks", "iterations", "batch_size", "seed")


# Links


def _as_pair(value: object) -> object:
    """(0, 1) and "0->1" mean the same."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+)\s*->\s*(\d+)\s*", value)
        if not found:
            raise SpecError('a link is named "0->1": from rank 0 to rank 1')
        return int(found[1]), int(found[2])
    return value


Pair = Annotated[
    tuple[Rank, Rank],
    BeforeValidator(_as_pair),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+->[0-9]+$"}),
]


class Link(Record):
    """One direction between two ranks. What it leaves out is as in the Network."""

    latency: Duration | None = Field(
        default=None, description="added to each message, such as '5 ms'"
    )
    bandwidth: Bandwidth | None = Field(
        default=None, description="at most this, such as '100 Mbit/s'"
    )
    down: bool = Field(default=False, description="nothing passes: contact is lost")

    @property
    def latency_ns(self) -> int:
        return units.duration_ns(self.latency or "0 ms")

    @property
    def bytes_per_second(self) -> float:
        return units.bytes_per_second(self.bandwidth or "unlimited")


class Network(Record):
    """Emulated links: they pace our transports, on top of what the machine needs anyway."""

    latency: Duration = Field(default="0 ms", description="added to each message of every link")
    bandwidth: Bandwidth = Field(
        default="unlimited", description="at most this on every link, each way"
    )
    links: Annotated[dict[Pair, Link], AfterValidator(Fixed)] = Field(
        default_factory=Fixed,
        description='links that differ, by direction: (0, 1), in YAML "0->1"',
    )

    @field_serializer("links", when_used="json")
    def _links_by_arrow(self, links: dict[tuple[int, int], Link]) -> dict[str, Link]:
        return {f"{sender}->{receiver}": link for (sender, receiver), link in links.items()}

    @model_validator(mode="after")
    def _no_link_to_itself(self) -> Self:
        for sender, receiver in self.links:
            if sender == receiver:
                raise SpecError(
                    f'Network.links["{sender}->{receiver}"]: a link goes from one rank to another; '
                    "what a rank sends to itself does not travel"
                )
        return self

    def link(self, sender: int, receiver: int) -> Link:
        """The link from ``sender`` to ``receiver``, with latency and bandwidth filled in."""
        own = self.links.get((sender, receiver), Link())
        return Link(
            latency=own.latency or self.latency,
            bandwidth=own.bandwidth or self.bandwidth,
            down=own.down,
        )


# Faults


class Kill(Record):
    """A rank's process is killed (SIGKILL) as it begins an iteration."""

    fault: Literal["kill"] = Field(default="kill", repr=False)
    rank: Rank = Field(description="which rank")
    at_iteration: Int = Field(ge=0, description="at the beginning of this iteration, from 0")


class Freeze(Record):
    """A rank's process is stopped (SIGSTOP) as it begins an iteration, and goes on later."""

    fault: Literal["freeze"] = Field(default="freeze", repr=False)
    rank: Rank = Field(description="which rank")
    at_iteration: Int = Field(ge=0, description="at the beginning of this iteration, from 0")
    seconds: Float = Field(gt=0, description="seconds until it goes on")


class Slow(Record):
    """A slow rank: its compute spans last ``factor`` times their own time, and only those."""

    fault: Literal["slow"] = Field(default="slow", repr=False)
    rank: Rank = Field(description="which rank")
    factor: Float = Field(ge=1, description="how many times as long; 1 changes nothing")


class Jitter(Record):
    """Every rank is slow in a random part of its iterations (drawn from the experiment's seed)."""

    fault: Literal["jitter"] = Field(default="jitter", repr=False)
    probability: Float = Field(ge=0, le=1, description="of an iteration being slow")
    factor: Float = Field(ge=1, description="how many times as long such an iteration computes")


Fault = Annotated[Kill | Freeze | Slow | Jitter, Field(discriminator="fault")]


# Code by name


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
    memory_limit: Size | None = Field(
        default=None, description="of each rank, such as '200 MB'; left out: none"
    )
    all_reduce: Annotated[Code, known("collectives", "all_reduce_", ("auto",))] = Field(
        default="ring",
        description="a file collectives/all_reduce_*.py, auto (by size), a path, or your function",
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
    pad_compute: Duration | None = Field(
        default=None, description="least duration of an iteration's computing, such as '20 ms'"
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
        """``lr``, or the optimizer's default: 0.1 for sgd, 0.001 for adam."""
        return self.lr if self.lr is not None else {"sgd": 0.1, "adam": 1e-3}[self.optimizer]

    @property
    def timeout_ns(self) -> int:
        return units.duration_ns(self.timeout)

    @property
    def pad_compute_ns(self) -> int | None:
        return None if self.pad_compute is None else units.duration_ns(self.pad_compute)

    @property
    def memory_limit_bytes(self) -> int | None:
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
        for check in (check_ranks, check_faults, check_device, check_options):
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
            data["network"] = self.network.model_dump(mode="json", exclude_defaults=True)
        text = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_yaml(cls, path_or_text: str | Path, allow_code: bool = False) -> Experiment:
        """An Experiment from a YAML file, or from its text.

        Code in it (source, or a path to a file) is refused unless ``allow_code``: to run such a
        spec is to run that code. Raises SpecError.
        """
        text, folder = read(path_or_text)
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SpecError(f"this is not YAML: {error}") from None
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
        return cls(**beside({str(key): value for key, value in data.items()}, folder))

    def to_json(self) -> str:
        """Everything, for another process: paths to code are absolute in it."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**beside(values, Path.cwd(), always=True)).model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Experiment:
        """What ``to_json`` wrote. Code in it is trusted: take it from your own process only."""
        return cls.model_validate(TypeAdapter(dict[str, Any]).validate_json(text))
