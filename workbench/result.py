"""What a run leaves, and what recording it has cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from workbench import wire
from workbench.errors import WorkbenchError
from workbench.meter import Samples
from workbench.units import counted

if TYPE_CHECKING:
    import torch


@dataclass
class Result:
    """What a run leaves. ``ok`` says whether it went well; if not, ``error`` says what happened."""

    # One per iteration: mean over the minibatch, before its update; and the same of every model,
    # where several were trained at the same time.
    losses: list[float] = field(default_factory=list)
    model_losses: list[list[float]] = field(default_factory=list)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)  # by name in the whole model
    digests: dict[int, str] = field(default_factory=dict)  # SHA-256 of each full replica, by rank
    # By rank: payload bytes, metrics left out; most bytes held, where that was measured (memory.py)
    bytes_sent: dict[int, int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # of the validation samples, at the end
    lost: list[int] = field(default_factory=list)  # ranks that ended, without which it went on
    wall_seconds: float = float("nan")  # first iteration's start to last iteration's end
    ok: bool = False
    error: WorkbenchError | None = None

    def __repr__(self) -> str:
        if not self.ok:
            return f"Result(failed: {type(self.error).__name__})"
        last = f", loss {self.losses[-1]:.4f}" if self.losses else ""
        return f"Result(ok, {counted(len(self.losses), 'iteration')}{last})"


@dataclass(frozen=True)
class Overhead:
    """What recording costs, as measured. ``share``: of the ranks' time, between 0 and 1."""

    records: int
    dropped: int
    record_ns: float  # one record: the mean of ``samples``, or as at the ranks' start if too few
    collector_seconds: float  # processor time of the collector's thread in the driver
    share: float
    samples: int = 0  # records of this run that were timed in place (workbench.meter)

    @classmethod
    def of(
        cls, records: int, dropped: int, traces: Iterable[tuple[Samples, float]],
        collector_seconds: float, seconds: float,
    ) -> Overhead:  # fmt: skip
        """``traces``: each rank's meter and its cost at the start. ``seconds``: of all ranks' time
        together, cores permitting.
        """
        each = list(traces)
        samples = sum((samples for samples, _ in each), Samples())
        mean = samples.mean_ns()
        if mean is None:
            mean = max((cost for _, cost in each), default=0.0)
        written = records + dropped
        spent = written * mean + samples.grown_ns
        return cls(
            records,
            dropped,
            spent / written if written else mean,
            collector_seconds,
            (spent * 1e-9 + collector_seconds) / seconds if seconds > 0 else 0.0,
            len(samples),
        )

    def to_json(self) -> str:
        """As it is kept in the metadata of a store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Overhead:
        return cls(**json.loads(text))


def mean_losses(reports: Sequence[Mapping[str, Any]]) -> list[float]:
    """The sample-weighted mean over the ranks that train, iteration by iteration."""
    losses = []
    each = [zip(r["losses"], r["samples"], strict=True) for r in reports if r["losses"]]
    for parts in zip(*each, strict=False):
        count = sum(samples for _, samples in parts)
        losses.append(
            sum(loss * samples for loss, samples in parts if samples) / count
            if count
            else float("nan")
        )
    return losses


def digest(parameters: dict[str, torch.Tensor]) -> str:
    """SHA-256 over names and bytes: equal exactly if two replicas are bit-identical."""
    import torch

    sha = hashlib.sha256()
    for name in sorted(parameters):
        sha.update(name.encode())
        sha.update(parameters[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def tensors(report: Mapping[str, Any], payload: bytearray) -> dict[str, torch.Tensor]:
    import torch

    return {
        name: torch.from_numpy(array)
        for name, array in wire.unpack_arrays(report["parameters"], payload).items()
    }
