"""The part of an Experiment that says what is done to ranks on purpose: computing that lasts a set
time, ranks that are killed, frozen, slow or preempted, links that are cut, minibatches that are
corrupt, and a data source that goes down. A rank does what strikes it as it begins an iteration,
the driver what is to be at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from workbench.common import units
from workbench.common.errors import SpecError
from workbench.experiment.frozen_model import Duration, Float, FrozenModel, Int, Rank, as_duration

SLOWEST = 1e9  # times as long
LONGEST = 1e9  # seconds


class Pads(FrozenModel):
    """Least durations of a pipeline's computing, each of one microbatch on one stage.

    The whole backward of a microbatch lasts input_gradient + weight_gradient.
    """

    forward: Duration = Field(description="of a forward (F), such as '10 ms'")
    input_gradient: Duration = Field(description="of the gradients for the stage before (I)")
    weight_gradient: Duration = Field(description="of the gradients of the parameters (W)")

    @property
    def ns(self) -> tuple[int, int, int]:
        """(F, I, W) in nanoseconds."""
        forward, input_gradient, weight_gradient = map(
            units.duration_ns, (self.forward, self.input_gradient, self.weight_gradient)
        )
        return forward, input_gradient, weight_gradient


def _as_pad(value: object) -> object:
    """Return a duration, or Pads for a mapping."""
    if not isinstance(value, Mapping):
        return value if isinstance(value, Pads) else as_duration(value)
    return Pads(**{str(key): one for key, one in value.items()})


Pad = Annotated[str | Pads, BeforeValidator(_as_pad)]


class When(FrozenModel):
    """An event: a rank is in a step of a collective of training, for the first time."""

    rank: Rank = Field(description="which rank is in it")
    step: Int = Field(ge=0, description="of the algorithm, from 0")
    collective: str = Field(
        default="all_reduce", min_length=1, description="such as all_reduce, or all_gather"
    )
    from_iteration: Int = Field(
        default=0, ge=0, description="once so many iterations are done, or later"
    )


class Moment(FrozenModel):
    """The moment of a fault: one of an iteration, a time or an event."""

    at_iteration: Int | None = Field(
        default=None,
        ge=0,
        description="once so many iterations are done: 10, as the eleventh begins",
    )
    after: Duration | None = Field(
        default=None, description="so long after all ranks have begun to train, such as '2 s'"
    )
    when: When | None = Field(default=None, description="as a rank comes to a step of a collective")

    _needs_moment: ClassVar[bool] = True  # else it is from the start
    _moments: ClassVar[tuple[str, ...]] = ("at_iteration", "after", "when")

    @property
    def has_moment(self) -> bool:
        """Whether it strikes later than at the start."""
        return any(getattr(self, name) is not None for name in self._moments)

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        names = self._moments
        moments = [name for name in names if getattr(self, name) is not None]
        if len(moments) > 1:
            raise SpecError.at(
                moments[1],
                f"is another moment, beside {moments[0]}: give one of {', '.join(names)}",
            )
        if self._needs_moment and not moments:
            raise SpecError.at(
                "at_iteration", "say when: at_iteration=10, after='2 s', or when=wb.When(...)"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_none(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields = {name: value for name, value in write(self).items() if value is not None}
        return dict(sorted(fields.items(), key=lambda item: item[0] in self._moments))

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """Yield what a repr shows: only what is given, the moment last."""
        arguments = [one for one in super().__repr_args__() if one[1] is not None]
        yield from sorted(arguments, key=lambda one: one[0] in self._moments)


class Kill(Moment):
    """A rank's process is killed (SIGKILL)."""

    fault: Literal["kill"] = Field(default="kill", repr=False)
    rank: Rank = Field(description="which rank")


class Preempt(Moment):
    """A rank is told that its machine is needed (SIGTERM), as ``run.preempt`` does."""

    fault: Literal["preempt"] = Field(default="preempt", repr=False)
    rank: Rank = Field(description="which rank")


class FailToStart(FrozenModel):
    """A rank never starts: its process ends before it is told which rank it is."""

    fault: Literal["fail_to_start"] = Field(default="fail_to_start", repr=False)
    rank: Rank = Field(description="which rank")


class Join(Moment):
    """A rank joins a run that trains. It was lost, or failed to start, by another fault before; if
    there is none, training begins without it. Nothing happens where it trains already.
    """

    fault: Literal["join"] = Field(default="join", repr=False)
    rank: Rank = Field(description="which rank")


class Freeze(Moment):
    """A rank's process is stopped (SIGSTOP), and goes on later."""

    fault: Literal["freeze"] = Field(default="freeze", repr=False)
    rank: Rank = Field(description="which rank")
    seconds: Float = Field(gt=0, le=LONGEST, description="seconds until it goes on")


class Slow(Moment):
    """A slow rank: its compute spans last ``factor`` times their own time, and only those."""

    fault: Literal["slow"] = Field(default="slow", repr=False)
    rank: Rank = Field(description="which rank")
    factor: Float = Field(ge=1, le=SLOWEST, description="how many times as long; 1 changes nothing")
    seconds: Float | None = Field(
        default=None, gt=0, le=LONGEST, description="for so many seconds; left out: to the end"
    )

    _needs_moment: ClassVar[bool] = False


class Cut(Moment):
    """A link lets nothing through, in one direction."""

    fault: Literal["cut"] = Field(default="cut", repr=False)
    source: Rank = Field(description="the rank that sends")
    target: Rank = Field(description="the rank that no longer receives from it")
    seconds: Float | None = Field(
        default=None, gt=0, le=LONGEST, description="for so many seconds; left out: to the end"
    )


class NetworkPartition(Moment):
    """Some ranks are cut off from the others, in both directions."""

    fault: Literal["partition"] = Field(default="partition", repr=False)
    ranks: tuple[Rank, ...] = Field(min_length=1, description="the ranks of one side")
    seconds: Float | None = Field(
        default=None, gt=0, le=LONGEST, description="for so many seconds; left out: to the end"
    )


class Jitter(FrozenModel):
    """Every rank is slow in a random part of its iterations (drawn from the experiment's seed)."""

    fault: Literal["jitter"] = Field(default="jitter", repr=False)
    probability: Float = Field(ge=0, le=1, description="of an iteration being slow")
    factor: Float = Field(
        ge=1, le=SLOWEST, description="how many times as long such an iteration computes"
    )


class Corrupt(FrozenModel):
    """A sample of a rank's share of one minibatch is corrupt (what becomes of it, ``bad_minibatch``
    says), or one bit of the rank's parameters flips (``digest_every`` finds it).
    """

    fault: Literal["corrupt"] = Field(default="corrupt", repr=False)
    rank: Rank = Field(description="which rank; it must load samples itself, as servers do not")
    at_iteration: Int = Field(
        ge=0, description="once so many iterations are done: 10, in the eleventh"
    )
    kind: Literal["nan", "raises", "shape", "bitflip"] = Field(
        default="nan",
        description="nan: it holds a NaN, and so does the gradient; raises: it cannot be "
        "read; shape: it lacks the last column; bitflip: a bit of one parameter flips as the "
        "iteration begins",
    )


class SourceDown(FrozenModel):
    """The source of all samples goes down, such as a remote data set behind an unstable network:
    first reading takes longer, then no rank can read. Ranks wait for ``data_patience`` at most.
    """

    fault: Literal["source_down"] = Field(default="source_down", repr=False)
    at_iteration: Int = Field(ge=1, description="once so many iterations are done")
    seconds: Float = Field(gt=0, le=LONGEST, description="seconds until it is back")
    slow_iterations: Int = Field(
        default=3,
        ge=0,
        description="iterations before in which reading takes longer: 200 ms in the last one, half "
        "as long in each before it",
    )


Fault = Annotated[
    Kill
    | Freeze
    | Slow
    | Jitter
    | Corrupt
    | Cut
    | NetworkPartition
    | Preempt
    | FailToStart
    | Join
    | SourceDown,
    Field(discriminator="fault"),
]


def not_there(faults: Iterable[Fault]) -> tuple[set[int], set[int]]:
    """Return the ranks that fail to start, and those without which training is to begin, as they
    join later.
    """
    fail = {one.rank for one in faults if isinstance(one, FailToStart)}
    lost = fail | {one.rank for one in faults if isinstance(one, Kill | Preempt)}
    return fail, {one.rank for one in faults if isinstance(one, Join)} - lost


def struck(fault: Fault) -> tuple[int, ...]:
    """Return the ranks that a fault names; none: it is of all."""
    match fault:
        case Jitter() | SourceDown():
            return ()
        case Cut(source=source, target=target):
            return source, target
        case NetworkPartition(ranks=ranks):
            return ranks
        case _:
            return (fault.rank,)
