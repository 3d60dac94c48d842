"""The result of a run, and the cost of recording it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.common import ipc
from workbench.common.errors import WorkbenchError
from workbench.common.units import counted
from workbench.recording.meter import Samples

if TYPE_CHECKING:
    import torch


@dataclass
class Result:
    """The result of a run. ``ok``: whether it went well; if not, ``error`` says what happened."""

    # One per iteration: mean over the minibatch, before its update; and the same of every model,
    # where several were trained at the same time.
    losses: list[float] = field(default_factory=list)
    model_losses: list[list[float]] = field(default_factory=list)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)  # by name in the whole model
    digests: dict[int, str] = field(default_factory=dict)  # SHA-256 of each full replica, by rank
    # By rank: payload bytes, metrics left out; most bytes held, where that was measured
    # (rank/memory.py)
    bytes_sent: dict[int, int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    # By rank: processor time of all its threads, from its model's making to the validated result.
    processor_seconds: dict[int, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # of the validation samples, at the end
    lost: list[int] = field(default_factory=list)  # ranks that ended; the run went on without them
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
    """The measured cost of recording. ``share``: of the ranks' time, between 0 and 1."""

    records: int
    dropped: int
    record_ns: float  # one record: the mean of ``samples``, or as at the ranks' start if too few
    collector_seconds: float  # processor time of the collector's thread in the driver
    share: float
    samples: int = 0  # records of this run that were timed in place (workbench.recording.meter)

    @classmethod
    def of(
        cls,
        records: int,
        dropped: int,
        traces: Iterable[tuple[Samples, float]],
        collector_seconds: float,
        seconds: float,
    ) -> Overhead:
        """Compute the overhead. ``traces``: each rank's meter and its cost at the start.
        ``seconds``: of all ranks' time together, limited by the cores.
        """
        each = list(traces)
        samples = sum((samples for samples, _ in each), Samples())
        mean = samples.mean_ns()
        if mean is None:
            mean = max((cost for _, cost in each), default=0.0)
        written = records + dropped
        spent = written * mean + samples.beside_ns
        return cls(
            records,
            dropped,
            spent / written if written else mean,
            collector_seconds,
            (spent * 1e-9 + collector_seconds) / seconds if seconds > 0 else 0.0,
            len(samples),
        )

    def to_json(self) -> str:
        """Encode it for the metadata of a store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Overhead:
        return cls(**json.loads(text))


def mean_losses(reports: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the sample-weighted mean over the ranks that train, iteration by iteration."""
    losses = []
    at: dict[int, list[tuple[float, float]]] = {}
    for report in reports:
        pairs = zip(report["losses"], report["samples"], strict=True)
        for iteration, pair in enumerate(pairs, report["begun"]):
            at.setdefault(iteration, []).append(pair)
    for _, parts in sorted(at.items()):
        count = sum(samples for _, samples in parts)
        losses.append(
            sum(loss * samples for loss, samples in parts if samples) / count
            if count
            else float("nan")
        )
    return losses


def losses_since(before: list[float], reports: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the mean losses of ``before`` a run was resumed, and those since. A rank that was
    behind then reports iterations that the others' losses are of already.
    """
    trained = [one for one in reports if one["losses"]]
    first = min((one["begun"] for one in trained), default=len(before))
    return before + mean_losses(trained)[max(0, len(before) - first) :]


def digest(parameters: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of names and bytes: equal exactly if two replicas are bit-identical."""
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
        for name, array in ipc.unpack_arrays(report["parameters"], payload).items()
    }
