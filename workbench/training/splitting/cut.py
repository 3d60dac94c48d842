"""The cut of a model into stages: by hand, in equal numbers of layers, or by the layers' cost.

"auto" makes the slowest stage as fast as it can be. A stage takes its layers' measured forward and
backward, and the sending of what crosses its boundaries (values on, gradients back: latency + bytes
x seconds per byte). Dynamic programming over boundaries and stages: the best cut of the layers
before boundary b into s stages is, over all boundaries a < b, the larger of

    the best cut of the layers before a into s-1 stages        and        stage s = layers a .. b

Of all cuts that are as fast, or nearly, the one with the fewest bytes across is taken. Under a
memory limit only stages count that stay below it:

    parameters x (2 + state)  +  activations of a microbatch x the most that are in flight there
    (parameter, gradient, optimizer state)                      (of the schedule, by stage)

With a ``memory_weight`` w the largest stage counts by (1 - w) x its share of the model's seconds +
w x its share of the model's bytes: 0 balances computing, 1 memory.

Source  Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019,
        section 3.1, without its replicated stages. ``memory_weight`` is named as in Amazon
        SageMaker's model parallelism library,
        https://docs.aws.amazon.com/sagemaker/latest/dg/model-parallel.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from workbench.common.errors import SpecError
from workbench.common.units import print_size
from workbench.training.splitting.profiled import Profile
from workbench.training.splitting.traced import Traced

_NEARLY = 1.02  # measured times repeat no better than this: as fast, for what they can tell
SECONDS_PER_BYTE = 1e-9  # shared memory between two ranks of a host: about 1 GB/s
LATENCY_S = 50e-6

Starts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """Stages of consecutive layers: stage s has layers starts[s] .. starts[s+1]-1."""

    starts: Starts  # the layer with which each stage begins; the first is 0
    layers: int  # how many the model has
    names: tuple[str, ...]  # of the layers in starts
    largest_s: float | None = None  # seconds of the slowest stage with its sends; None: unmeasured
    equal_largest_s: float | None = None  # the same, were the layers shared out in equal numbers

    @property
    def stages(self) -> int:
        return len(self.starts)

    def layers_of(self, stage: int) -> tuple[int, int]:
        """Return the first and the last layer of a stage."""
        return self.starts[stage], (*self.starts, self.layers)[stage + 1] - 1

    def stage_of(self, layer: int) -> int:
        """Return the stage of a layer."""
        return sum(start <= layer for start in self.starts) - 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cut:
        return cls(**{**data, "starts": tuple(data["starts"]), "names": tuple(data["names"])})


@dataclass(frozen=True)
class Costs:
    """The costs of a stage of a profile's layers: seconds, bytes sent, bytes of memory."""

    profile: Profile
    seconds_per_byte: float = SECONDS_PER_BYTE
    latency_s: float = LATENCY_S
    state_factor: float = 0.0  # optimizer state in parameters: 0 of sgd, 1 with momentum

    def seconds(self, start: int, end: int) -> float:
        """Return the seconds of a microbatch's forward and backward of layers start .. end-1, with
        sends.
        """
        sent = self.sent[end][0] + self.sent[start][1]
        sending = len(sent) * self.latency_s + sum(sent) * self.seconds_per_byte
        return self._until[end] - self._until[start] + sending

    def across(self, start: int, end: int) -> int:
        """Return the bytes that the stage sends: values forwards, gradients backwards."""
        return sum(self.sent[end][0] + self.sent[start][1])

    @cached_property
    def sent(self) -> tuple[tuple[list[int], list[int]], ...]:
        """The bytes of the values that cross each boundary, and of their gradients.

        The index is the first layer behind the boundary.
        """
        crossing = [self.profile.crossing(i) for i in range(len(self.profile.layers) - 1)]
        inner = [
            ([v.nbytes for v in over], [v.nbytes for v in over if v.gradient]) for over in crossing
        ]
        return (([], []), *inner, ([], []))

    @cached_property
    def _until(self) -> list[float]:
        """Seconds of the layers before each."""
        return list(accumulate((layer.seconds for layer in self.profile.layers), initial=0.0))

    def memory(self, start: int, end: int, peak: int) -> float:
        """Return the bytes of a stage with ``peak`` microbatches in flight."""
        parameters = sum(layer.parameters for layer in self.profile.layers[start:end])
        fixed = parameters * (2 + self.state_factor)
        return fixed + peak * self.profile.held(start, end - 1)


def choose(
    measured: Profile | Traced,
    stages: int,
    how: str | Sequence[str] = "auto",
    *,
    peaks: Sequence[int] | None = None,
    limit_bytes: int | None = None,
    state_factor: float = 0.0,
    seconds_per_byte: float = SECONDS_PER_BYTE,
    latency_s: float = LATENCY_S,
    rank_of: Sequence[int] | None = None,
    memory_weight: float = 0.0,
) -> Cut:
    """Cut the model into ``stages``.

    how       "auto": by measured time, communication and memory (see above); needs a Profile
              "layers": equal numbers of layers, as far as the boundaries allow
              a list of the layers (or modules) with which a new stage begins, one fewer than stages
    peaks     most microbatches in flight, by stage (1 each, if not given)
    rank_of   the rank of each stage, where a rank has several: the limit is the rank's
    memory_weight  of "auto": 0 balances computing, 1 memory, between them both

    Raises SpecError where there is no such cut.
    """
    count, names = len(measured.names), measured.names
    if stages < 1:
        raise SpecError(f"a model is cut into at least 1 stage, not {stages}")
    refusals = measured.refusals() if isinstance(measured, Traced) else measured.refusals
    boundaries = [0, *(i + 1 for i in range(count - 1) if refusals[i] is None), count]
    costs = None
    if isinstance(measured, Profile):
        costs = Costs(measured, seconds_per_byte, latency_s, state_factor)
    if not isinstance(how, str):
        starts = _starts_by_name(names, refusals, stages, tuple(how))
    elif stages > len(boundaries) - 1:
        raise SpecError(
            f"{stages} stages cannot be made: the model has {count} layers and can be cut at "
            f"{len(boundaries) - 2} boundaries, so into {len(boundaries) - 1} stages at most"
        )
    elif how == "layers":
        starts = _equal(boundaries, stages)
    elif how != "auto":
        raise SpecError(f"split {how!r} is not known: write 'auto', 'layers' or a list of layers")
    elif costs is None:
        raise SpecError("split 'auto' needs the measured times of the layers: measure(...) first")
    else:
        in_flight = tuple(peaks or (1,) * stages)
        limit = math.inf if limit_bytes is None else limit_bytes
        ranks = tuple(rank_of or range(stages))
        starts = _auto(costs, boundaries, in_flight, limit, ranks, memory_weight)
    cut = Cut(starts, count, tuple(names[i] for i in starts))
    if costs is None:
        return cut
    equal = largest(costs, _equal(boundaries, stages)) if stages < len(boundaries) else None
    return replace(cut, largest_s=largest(costs, starts), equal_largest_s=equal)


def largest(costs: Costs, starts: Starts) -> float:
    """Return the seconds of the slowest stage."""
    ends = (*starts[1:], len(costs.profile.layers))
    return max(costs.seconds(a, b) for a, b in zip(starts, ends, strict=True))


def memories(costs: Costs, starts: Starts, peaks: Sequence[int]) -> tuple[float, ...]:
    """Return the bytes of each stage."""
    ends = (*starts[1:], len(costs.profile.layers))
    return tuple(costs.memory(a, b, p) for a, b, p in zip(starts, ends, peaks, strict=True))


def _equal(boundaries: list[int], stages: int) -> Starts:
    """Return the cut with the smallest sum of squared layer counts: as equal as can be."""
    result = _best(boundaries, stages, lambda a, b, _: float((b - a) ** 2), lambda x, y: x + y)
    assert result is not None  # there are enough boundaries
    return result[1]


def _auto(
    costs: Costs,
    boundaries: list[int],
    peaks: tuple[int, ...],
    limit: float,
    rank_of: tuple[int, ...],
    memory_weight: float,
) -> Starts:
    """Return the best cut within the limit; of several, that with the fewest bytes sent."""
    # Where a rank has several stages, they share its limit: first as if each had all of it, then,
    # where their sum is too much, an equal part each.
    for bound in dict.fromkeys((limit, limit * len(set(rank_of)) / len(peaks))):
        if memory_weight:
            starts = _balanced(costs, boundaries, peaks, bound, memory_weight)
        else:
            starts = _fastest(costs, boundaries, peaks, bound)
        if starts is None:
            break
        if max(_by_rank(memories(costs, starts, peaks), rank_of).values()) <= limit:
            return starts
    least = _best(boundaries, len(peaks), lambda a, b, s: costs.memory(a, b, peaks[s]), max)
    assert least is not None
    needs = _by_rank(memories(costs, least[1], peaks), rank_of)
    worst = max(needs, key=lambda rank: needs[rank])
    raise SpecError(
        f"no cut into {len(peaks)} stages keeps every rank below {print_size(int(limit))}: the "
        f"thriftiest needs {brief(needs[worst])} on rank {worst}. Take more "
        "stages, smaller microbatches or a schedule with fewer of them in flight"
    )


def _fastest(
    costs: Costs, boundaries: list[int], peaks: tuple[int, ...], bound: float
) -> Starts | None:
    """Return the fastest cut whose stages stay below ``bound`` bytes; None where there is none."""

    def slowest(start: int, end: int, stage: int) -> float:
        fits = bound == math.inf or costs.memory(start, end, peaks[stage]) <= bound
        return costs.seconds(start, end) if fits else math.inf

    result = _best(boundaries, len(peaks), slowest, max)
    if result is None:
        return None
    # Nearly as fast is enough, but never slower than equal numbers of layers would be.
    equal = largest(costs, _equal(boundaries, len(peaks)))
    enough = max(result[0], min(result[0] * _NEARLY, equal))

    def across(start: int, end: int, stage: int) -> float:
        return costs.across(start, end) if slowest(start, end, stage) <= enough else math.inf

    fewest = _best(boundaries, len(peaks), across, lambda x, y: x + y)
    return (fewest or result)[1]


def _balanced(
    costs: Costs, boundaries: list[int], peaks: tuple[int, ...], bound: float, weight: float
) -> Starts | None:
    """Return the cut whose largest share of seconds and bytes is smallest, with stages below
    ``bound`` bytes; None where there is none.
    """
    end = boundaries[-1]
    all_s, all_bytes = costs.seconds(0, end) or 1.0, costs.memory(0, end, 1) or 1.0

    def share(start: int, end: int, stage: int) -> float:
        nbytes = costs.memory(start, end, peaks[stage])
        if nbytes > bound:
            return math.inf
        return (1 - weight) * costs.seconds(start, end) / all_s + weight * nbytes / all_bytes

    best = _best(boundaries, len(peaks), share, max)
    return None if best is None else best[1]


def brief(nbytes: float) -> str:
    """Format a size to three digits: "2.12 MB"."""
    return print_size(int(float(f"{nbytes:.3g}")))


def _by_rank(bytes_of: Sequence[float], rank_of: Sequence[int]) -> dict[int, float]:
    """Return the bytes of each rank, over all its stages."""
    needs = dict.fromkeys(rank_of, 0.0)
    for rank, nbytes in zip(rank_of, bytes_of, strict=True):
        needs[rank] += nbytes
    return needs


def _best(
    boundaries: list[int],
    stages: int,
    cost: Callable[[int, int, int], float],
    join: Callable[[float, float], float],
) -> tuple[float, Starts] | None:
    """Return the cheapest cut's cost and starts; None where every cut costs infinitely much.

    ``cost(start, end, stage)`` of one stage; ``join`` of the stages before and one more.
    """
    best: dict[int, tuple[float, Starts]] = {0: (0.0, ())}
    for stage in range(stages):
        further: dict[int, tuple[float, Starts]] = {}
        for end in boundaries:
            options = [
                (join(before, cost(start, end, stage)), (*starts, start))
                for start, (before, starts) in best.items()
                if start < end
            ]
            if options and min(options)[0] < math.inf:
                further[end] = min(options)
        best = further
    return best.get(boundaries[-1])


def _starts_by_name(
    known: Sequence[str], refusals: Sequence[str | None], stages: int, names: tuple[str, ...]
) -> Starts:
    """Return the start layers for ``names`` of layers, or of modules (their first layer)."""
    if len(names) != stages - 1:
        raise SpecError(
            f"split names {len(names)} layers, which makes {len(names) + 1} stages; there are "
            f"{stages}: name {stages - 1}"
        )
    starts = [0]
    for name in names:
        result = [i for i, n in enumerate(known) if n == name or n.startswith(f"{name}.")]
        if not result:
            raise SpecError(f"split: there is no layer {name!r}; there are {', '.join(known)}")
        if result[0] <= starts[-1]:
            raise SpecError(
                f"split: {name!r} is not after the start of the stage before it, "
                f"{known[starts[-1]]!r}: name layers in the order in which they run, "
                f"{', '.join(known)}"
            )
        refusal = refusals[result[0] - 1]
        if refusal:
            raise SpecError(f"split: no stage can begin at {name!r}: {refusal}")
        starts.append(result[0])
    return tuple(starts)
