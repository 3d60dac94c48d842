"""The fields of an Experiment: each says its unit and its effect, and is checked by itself."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Le
from pydantic import BeforeValidator, Field

from workbench.common import units
from workbench.common.arguments import Number, checked
from workbench.common.errors import SpecError
from workbench.experiment import optimizers
from workbench.experiment.checkpoint import Checkpoint, Folder
from workbench.experiment.faults import Fault, Pad, Pads
from workbench.experiment.frozen_model import (
    Count,
    Duration,
    Fixed,
    Float,
    FrozenModel,
    Int,
    Options,
    Positive,
    Size,
    as_code,
)
from workbench.experiment.names import known
from workbench.experiment.network import Network
from workbench.user_code.source import Source

LARGEST_CHUNK = 64 * 2**20
MOST_RANKS = 1024  # processes of one machine: a control block has words for every pair of them
MOST_THREADS = 1024  # of one rank

Code = Annotated[str | Source, BeforeValidator(as_code)]


def _as_faults(value: object) -> object:
    """Return a single fault as one of several."""
    if hasattr(value, "rates"):
        raise SpecError(
            "is a scenario: scenario.on(experiment) adds its faults to the experiment's"
        )
    return (value,) if isinstance(value, FrozenModel) else value


class Fields(FrozenModel):
    """The fields of an Experiment, and what they come to in seconds and bytes."""

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
    ranks: Int = Field(default=4, ge=1, le=MOST_RANKS, description="number of processes")
    min_ranks: Count | None = Field(
        default=None,
        description="fewest ranks with which training begins, and goes on: ranks=(2, 6) sets "
        "both; left out: it begins with all, and goes on with 1",
    )
    grace: Duration = Field(
        default="5 s",
        description="how long training waits for all ranks before it begins with those that came, "
        "where there is a minimum",
    )
    iterations: Int = Field(
        default=200, ge=1, description="updates of the parameters, by each worker"
    )
    stop_after: Duration | None = Field(
        default=None,
        description="how long ranks train, such as '2 min': then the run ends well, after the "
        "same iteration on all of them; time in which you hold the ranks or freeze one does not "
        "count; left out: to the last iteration",
    )
    batch_size: Int = Field(
        default=64, ge=1, description="samples of a whole minibatch, over all workers"
    )
    scale_batch: bool = Field(
        default=False,
        description="the minibatch goes with the number of ranks that train, and the learning rate "
        "with the minibatch: batch_size and lr are those of all ranks",
    )
    seed: Int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="fixes initial parameters, split and order of the samples",
    )
    shuffle_buffer: Count | None = Field(
        default=None,
        description="samples among which the next one is drawn, where the data set is read from "
        "front to back, as from files; left out: among all that are left",
    )
    optimizer: optimizers.Name = Field(default="sgd", description="update rule")
    lr: Positive | None = Field(
        default=None,
        description="learning rate; left out: 0.1 for sgd, 0.01 for adagrad, else 0.001",
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
    threads: Annotated[Count, Le(MOST_THREADS)] | None = Field(
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
    launcher: Annotated[Code, known("launchers")] = Field(
        default="local",
        description="how ranks come to exist: a file launchers/*.py, or a path",
    )
    launcher_options: Options = Field(
        default_factory=Fixed, description="fields of the launcher's Config: hosts, binding, ..."
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
    pad_environment: Duration | None = Field(
        default=None,
        description="least duration of a step of an environment, such as '5 ms', for tasks that "
        "play one",
    )
    faults: Annotated[
        tuple[Fault, ...],
        BeforeValidator(_as_faults),
    ] = Field(
        default=(),
        description="what goes wrong on purpose: Kill, Freeze, Slow, Cut ...; a Scenario "
        "adds its own",
    )
    bad_minibatch: Literal["keep", "fail", "skip"] = Field(
        default="keep",
        description="one that cannot be loaded, or whose gradient is not finite; keep: it is not "
        "looked for, so that a NaN enters the sum; fail: an error names rank, layer and sample "
        "before the sum; skip: all ranks leave it out, or this rank its share, where ranks do not "
        "sum gradients (gossip, malt, ad_psgd, parameter_server)",
    )
    data_patience: Duration = Field(
        default="60 s",
        description="how long a rank waits for the source of its samples, while none of them can "
        "be read: a file that vanished, a folder that is not mounted. The run pauses, and writes a "
        "checkpoint first where it has any and goes on from memory; then it is an error",
    )
    digest_every: Int = Field(
        default=0,
        ge=0,
        description="iterations between two comparisons of what ranks train, bit by bit: an error "
        "names the rank that differs from most, or the run goes on without it, as recovery says; "
        "0: none",
    )
    checkpoint: Checkpoint | None = Field(
        default=None,
        description="where checkpoints are written, and how often; left out: none",
    )
    resume: Folder | None = Field(
        default=None,
        description="a folder of checkpoints, to go on from the newest whole one, or one of them",
    )
    recovery: Annotated[Code, known("recovery")] = Field(
        default="abort",
        description="what happens when a rank is lost: a file of recovery/, a path, or your "
        "function",
    )
    quorum_timeout: Duration = Field(
        default="1 s",
        description="with recovery='quorum': how late a rank may be, for how long stopped, or "
        "its messages of one collective on their way; then the others go on without it until it "
        "answers in time",
    )
    timeout: Duration = Field(default="30 s", description="no progress for this long is an error")
    record: bool = Field(default=True, description="whether events are recorded")
    options: Options = Field(
        default_factory=Fixed, description="the strategy's own, see its Config"
    )

    @property
    def learning_rate(self) -> float:
        """``lr``, or the optimizer's default: 0.1 for sgd, 0.01 for adagrad, else 0.001; scaled to
        the minibatch where there is a ``reference_batch``.
        """
        return self._given_rate * self.batch_size / (self.reference_batch or self.batch_size)

    @property
    def _given_rate(self) -> float:
        return optimizers.RULES[self.optimizer].rate if self.lr is None else self.lr

    @checked
    def rate_at(self, update: Number) -> float:
        """Return the learning rate of an update, counted from 0.

        It grows by equal amounts to ``learning_rate`` at update ``warmup``: from ``lr`` if that is
        scaled, else from ``learning_rate / warmup``.

        Paper  Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv
               1706.02677, 2017: the linear scaling rule, and gradual warm-up.
        """
        whole = self.learning_rate
        if update >= self.warmup:
            return whole
        first = whole / self.warmup if self.reference_batch is None else self._given_rate
        return whole - (whole - min(first, whole)) * (1 - update / self.warmup)

    @property
    def recovers(self) -> bool:
        """Whether the run may go on when a rank is lost."""
        return self.recovery != "abort"

    @property
    def grace_ns(self) -> int:
        """``grace`` in nanoseconds."""
        return units.duration_ns(self.grace)

    @property
    def data_patience_ns(self) -> int:
        """``data_patience`` in nanoseconds."""
        return units.duration_ns(self.data_patience)

    @property
    def quorum_timeout_ns(self) -> int:
        """``quorum_timeout`` in nanoseconds."""
        return units.duration_ns(self.quorum_timeout)

    @property
    def stop_after_ns(self) -> int | None:
        """``stop_after`` in nanoseconds."""
        return None if self.stop_after is None else units.duration_ns(self.stop_after)

    @property
    def length(self) -> str:
        """Return how long it trains, in words: "200 iterations", or "at most 2 min"."""
        if self.stop_after is not None:
            return f"at most {self.stop_after}"
        return units.counted(self.iterations, "iteration")

    @property
    def timeout_ns(self) -> int:
        """``timeout`` in nanoseconds."""
        return units.duration_ns(self.timeout)

    @property
    def pad_compute_ns(self) -> int | None:
        """The pad of an iteration's computation; None without one, or if it is given as Pads."""
        is_text = isinstance(self.pad_compute, str)
        return units.duration_ns(self.pad_compute) if is_text else None

    @property
    def pad_environment_ns(self) -> int:
        """``pad_environment`` in nanoseconds; 0 without one."""
        return 0 if self.pad_environment is None else units.duration_ns(self.pad_environment)

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
