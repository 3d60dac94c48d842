"""The part of an Experiment that says what is done to ranks on purpose: computing that lasts a set
time, ranks that are killed, frozen or slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from workbench import units
from workbench.errors import SpecError
from workbench.record import Duration, Float, Int, Rank, Record, as_duration


class Pads(Record):
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
    """A mapping means Pads; what is wrong in it is said of its own fields."""
    if not isinstance(value, Mapping):
        return value if isinstance(value, Pads) else as_duration(value)
    try:
        return Pads(**{str(key): one for key, one in value.items()})
    except SpecError as error:
        raise SpecError(str(error).replace("Pads.", "")) from None


Pad = Annotated[str | Pads, BeforeValidator(_as_pad)]


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
