"""The experiment as data: frozen, checked before any process starts, equal to its YAML.

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
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError, model_validator

from workbench.auditing.audit import LIMIT
from workbench.auditing.report import Audit
from workbench.common.arguments import Place, Text, TimeLimit, checked
from workbench.common.errors import SpecError, short
from workbench.common.names import listed
from workbench.common.output_files import write_text
from workbench.experiment.checks import (
    check_algorithm,
    check_bad_minibatch,
    check_device,
    check_digests,
    check_durations,
    check_emulation,
    check_options,
    check_pads,
    check_ranks,
    check_recovery,
)
from workbench.experiment.elastic_checks import as_pair, check_min_ranks, check_scale_batch
from workbench.experiment.environment_checks import check_environment
from workbench.experiment.fault_checks import check_faults
from workbench.experiment.faults import (
    Corrupt,
    Cut,
    FailToStart,
    Fault,
    Freeze,
    Jitter,
    Join,
    Kill,
    NetworkPartition,
    Pads,
    Preempt,
    Slow,
    SourceDown,
    When,
)
from workbench.experiment.fields import Fields
from workbench.experiment.network import Link, Network
from workbench.experiment.yaml_text import as_fields, beside, code_in, dump, parse, read
from workbench.user_code.source import Source

__all__ = [
    "Corrupt",
    "Cut",
    "Experiment",
    "FailToStart",
    "Fault",
    "Freeze",
    "Jitter",
    "Join",
    "Kill",
    "Link",
    "Network",
    "NetworkPartition",
    "Pads",
    "Preempt",
    "Slow",
    "SourceDown",
    "When",
]

_ALWAYS_WRITTEN = ("strategy", "task", "ranks", "iterations", "batch_size", "seed")


class Experiment(Fields):
    """An experiment, as data. See each field; ``wb.run(experiment)`` runs it."""

    @property
    def carries_code(self) -> tuple[str, ...]:
        """Fields that hold code of the user's own, as source or as a path to it."""
        return tuple(code_in({name: getattr(self, name) for name in type(self).model_fields}))

    @property
    def _maker(self) -> str:
        return "exp.replace"

    def replace(self, **changes: Any) -> Experiment:
        """Return the experiment with ``changes``, checked again: exp.replace(ranks=8)."""
        return Experiment(
            **{**{name: getattr(self, name) for name in self.model_fields_set}, **changes}
        )

    @checked
    def audit(self, progress: bool = True, timeout: TimeLimit = LIMIT) -> Audit:
        """Judge whether the experiment's first update is the one that is due; see ``wb.audit``.

        It abstains where the strategy promises something else than the gradient of the whole
        minibatch (``Traits.update``). ``progress`` and ``timeout`` are those of ``wb.audit``.
        """
        from workbench.experiment.promise import judged

        return judged(self, progress, timeout)

    # What cannot be, beyond single fields

    @model_validator(mode="before")
    @classmethod
    def _ranks_as_pair(cls, values: Any) -> Any:
        return as_pair(values)

    @model_validator(mode="before")
    @classmethod
    def _task_object(cls, values: Any) -> Any:
        """Convert a task given as a dataclass object to its class, with its fields as options."""
        task = values.get("task") if isinstance(values, Mapping) else None
        if callable(task) or isinstance(task, Source) or type(task).__module__ == "builtins":
            return values
        name, fields = type(task).__name__, getattr(task, "__dict__", {})
        if dataclasses.is_dataclass(task):
            fields = {
                one.name: getattr(task, one.name) for one in dataclasses.fields(task) if one.init
            }
        elif fields:
            raise SpecError.at(
                "task",
                f"an object's state ({listed(fields)}) does not travel. Pass the class, "
                f"task={name}, and what it is made with as task_options",
                task,
            )
        if fields and values.get("task_options"):
            raise SpecError.at(
                "task",
                f"is an object with values of its own ({listed(fields)}), and task_options gives "
                f"more: pass the class, task={name}, and all as task_options",
            )
        return {**values, "task": type(task), **({"task_options": fields} if fields else {})}

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        for check in (
            check_ranks,
            check_algorithm,
            check_faults,
            check_bad_minibatch,
            check_digests,
            check_device,
            check_pads,
            check_durations,
            check_environment,
            check_options,
            check_recovery,
            check_min_ranks,
            check_emulation,
            check_scale_batch,
        ):
            check(self)
        return self

    # YAML and JSON

    @checked
    def to_yaml(self, path: Place | None = None) -> str:
        """Return the YAML text: the main fields and all that differ from defaults.

        Also write it to ``path``.
        """
        whole, fields = self.model_dump(mode="json"), type(self).model_fields
        changed = {
            name
            for name, field in fields.items()
            if getattr(self, name) != field.get_default(call_default_factory=True)
        }
        data = {name: whole[name] for name in fields if name in {*_ALWAYS_WRITTEN, *changed}}
        if "network" in data:
            facts = self.network.model_dump(mode="json", exclude_defaults=True)
            if not self.network.links:
                facts.pop("links", None)
            data["network"] = facts
        text = dump(data)
        if path is not None:
            write_text(path, "the experiment", text)
        return text

    @classmethod
    @checked
    def from_yaml(cls, path_or_text: Place, allow_code: bool = False) -> Experiment:
        """Return an Experiment from a YAML file, or from its text (``path_or_text``).

        Code in it (source, or a path to a file) is refused unless ``allow_code``: to run such a
        spec is to run that code. Raises SpecError.
        """
        origin = path_or_text if isinstance(path_or_text, str) else Path(path_or_text)
        text, folder = read(origin)
        fields = as_fields(parse(text), str(origin))
        if not allow_code and (carrying := list(code_in(fields))):
            raise SpecError(
                f"this spec carries its author's code in {listed(carrying)}, and to run it is "
                "to run that code. If you trust it: from_yaml(..., allow_code=True) or --allow-code"
            )
        return cls(**beside(fields, folder))

    def to_json(self) -> str:
        """Return all fields for another process; paths to code are absolute."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**beside(values, Path.cwd(), always=True)).model_dump_json()

    @classmethod
    @checked
    def from_json(cls, text: Text) -> Experiment:
        """Return the Experiment that ``to_json`` wrote as ``text``.

        Code in it is trusted: take it from your own process only. Raises SpecError.
        """
        try:
            fields = TypeAdapter(dict[str, Any]).validate_json(text)
        except ValidationError:
            raise SpecError(
                f"{short(text)} is not an experiment's JSON: write what exp.to_json() gives"
            ) from None
        return cls.model_validate(fields)
