"""Cuts: equal, by name and automatic; the automatic one against every cut that there is."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import MODELS, example
from tests.pairwise import first
from workbench.common.errors import SpecError
from workbench.training.splitting.cut import Costs, Cut, choose, largest, memories
from workbench.training.splitting.measuring import measure
from workbench.training.splitting.profiled import Kept, LayerCost, Profile, Value
from workbench.training.splitting.traced import trace


def line(
    seconds: list[float],
    *,
    nbytes: list[int] | None = None,
    kept: list[int] | None = None,
    refused: frozenset[int] = frozenset(),
) -> Profile:
    """A profile of layers in a row: their seconds, the bytes that each gives and keeps."""
    count = len(seconds)
    gives, keeps = nbytes or [0] * count, kept or [0] * count
    layers = tuple(
        LayerCost(
            f"layer.{i}",
            "Linear",
            10,
            keeps[i],
            gives[i],
            s / 3,
            s * 2 / 3,
            (Kept(i, 0, keeps[i], keeps[i], i),),
        )
        for i, s in enumerate(seconds)
    )
    values = tuple(Value(f"v{i}", i, (i + 1,), gives[i], True) for i in range(count - 1))
    refusals = tuple("not here" if i in refused else None for i in range(count - 1))
    return Profile(layers, values, refusals)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Profile, int, tuple[int, ...], int | None]:
    count = draw(st.integers(2, 9))
    several = st.lists(st.integers(0, 50), min_size=count, max_size=count)
    refused = draw(st.frozensets(st.integers(0, count - 2), max_size=count // 3))
    profile = line(
        [1 + s for s in draw(several)], nbytes=draw(several), kept=draw(several), refused=refused
    )
    stages = draw(st.integers(1, min(4, count - len(refused))))
    peaks = tuple(draw(st.integers(1, 4)) for _ in range(stages))
    return profile, stages, peaks, draw(st.none() | st.integers(50, 400))


@given(problems())
def test_no_cut_has_a_faster_slowest_stage(problem: tuple) -> None:
    profile, stages, peaks, limit = problem
    costs = Costs(profile, seconds_per_byte=0.1, latency_s=0.5)
    boundaries = [i + 1 for i, refusal in enumerate(profile.refusals) if refusal is None]
    every = [(0, *chosen) for chosen in combinations(boundaries, stages - 1)]
    fitting = [s for s in every if limit is None or max(memories(costs, s, peaks)) <= limit]
    settings = {"seconds_per_byte": 0.1, "latency_s": 0.5, "peaks": peaks, "limit_bytes": limit}
    if not fitting:
        with pytest.raises(SpecError, match=r"the thriftiest needs .* on rank"):
            choose(profile, stages, "auto", **settings)
        return
    cut = choose(profile, stages, "auto", **settings)
    assert cut.starts in fitting
    fastest = min(largest(costs, starts) for starts in fitting)
    assert fastest <= cut.largest_s <= fastest * 1.02 + 1e-9
    if len(fitting) == len(every):
        assert cut.largest_s <= cut.equal_largest_s + 1e-9


def test_time_balances_layers_of_different_cost() -> None:
    profile = line([6, 1, 1, 1, 1, 2])
    assert choose(profile, 2, "layers").starts == (0, 3)
    cut = choose(profile, 2, "auto", seconds_per_byte=0, latency_s=0)
    assert (cut.starts, cut.largest_s, cut.equal_largest_s) == ((0, 1), 6, 8)


def test_communication_counts() -> None:
    profile = line([2, 2, 2, 2], nbytes=[0, 100, 0, 0])
    assert choose(profile, 2, "auto", seconds_per_byte=0, latency_s=0).starts == (0, 2)
    assert choose(profile, 2, "auto", seconds_per_byte=1, latency_s=0).starts != (0, 2)


def test_of_equally_fast_cuts_that_with_the_fewest_bytes_across() -> None:
    profile = line([4, 1, 1, 4, 4], nbytes=[9, 1, 9, 9, 9])
    assert choose(profile, 3, "auto", seconds_per_byte=0, latency_s=1e-9).starts[1] == 2


def test_memory_moves_the_cut_toward_the_stage_with_fewer_in_flight() -> None:
    profile = line([1] * 6, kept=[30] * 6)
    free = choose(profile, 2, "auto", peaks=(2, 1), latency_s=0)
    tight = choose(profile, 2, "auto", peaks=(2, 1), latency_s=0, limit_bytes=200)
    assert (free.starts, tight.starts) == ((0, 3), (0, 2))
    needs = memories(Costs(profile, state_factor=2), tight.starts, (2, 1))
    assert needs == (2 * 10 * 4 + 2 * 60, 4 * 10 * 4 + 120)


@given(problems(), st.sampled_from([0.25, 0.5, 1.0]))
def test_no_cut_balances_time_and_memory_better(problem: tuple, weight: float) -> None:
    profile, stages, peaks, _ = problem
    costs = Costs(profile, seconds_per_byte=0.1, latency_s=0.5)
    count = len(profile.layers)
    boundaries = [i + 1 for i, refusal in enumerate(profile.refusals) if refusal is None]
    all_s, all_bytes = costs.seconds(0, count), costs.memory(0, count, 1)

    def share(starts: tuple[int, ...]) -> float:
        each = zip(starts, (*starts[1:], count), memories(costs, starts, peaks), strict=True)
        return max(
            (1 - weight) * costs.seconds(a, b) / all_s + weight * nbytes / all_bytes
            for a, b, nbytes in each
        )

    settings = {"seconds_per_byte": 0.1, "latency_s": 0.5, "peaks": peaks}
    cut = choose(profile, stages, "auto", memory_weight=weight, **settings)
    every = [(0, *chosen) for chosen in combinations(boundaries, stages - 1)]
    assert share(cut.starts) == pytest.approx(min(map(share, every)))


def test_the_weight_of_memory_moves_the_cut_from_equal_seconds_to_equal_bytes() -> None:
    profile = line([4, 1, 1, 1, 1], kept=[10] * 5)
    settings = {"latency_s": 0, "seconds_per_byte": 0, "peaks": (1, 1)}
    starts = [
        choose(profile, 2, "auto", memory_weight=weight, **settings).starts for weight in (0, 1)
    ]
    assert starts[0] == (0, 1)
    needs = memories(Costs(profile), starts[1], (1, 1))
    assert max(needs) < max(memories(Costs(profile), starts[0], (1, 1)))


def test_a_rank_with_several_stages_shares_its_limit() -> None:
    profile = line([1] * 8, kept=[30] * 8)
    settings = {"peaks": (1,) * 4, "rank_of": (0, 1, 0, 1)}
    needs = memories(Costs(profile), choose(profile, 4, "auto", **settings).starts, (1,) * 4)
    assert choose(profile, 4, "auto", limit_bytes=int(2 * needs[0]), **settings)
    with pytest.raises(SpecError, match="keeps every rank below"):
        choose(profile, 4, "auto", limit_bytes=int(2 * needs[0]) - 1, **settings)


@pytest.mark.parametrize("name", first(1, MODELS))
def test_real_models_cut_no_worse_than_in_equal_numbers(name: str) -> None:
    model, args = example(name)
    profile = measure(trace(model, len(args)), args, repeats=2)
    for stages in (2, 3, 4):
        cut = choose(profile, stages)
        assert cut.largest_s <= cut.equal_largest_s
        assert cut.stages == len(cut.names) == stages
        assert Cut.from_json(cut.to_json()) == cut


def test_layers_in_equal_numbers_as_far_as_boundaries_allow() -> None:
    assert choose(line([1] * 12), 4, "layers").starts == (0, 3, 6, 9)
    refused = frozenset({2, 5})  # of the boundaries before layers 3 and 6
    starts = choose(line([1] * 12, refused=refused), 4, "layers").starts
    assert not {3, 6} & set(starts)
    ends = (*starts[1:], 12)
    assert max(b - a for a, b in zip(starts, ends, strict=True)) == 4


def test_stages_begin_at_the_layers_that_are_named() -> None:
    traced = trace(example("transformer")[0])
    cut = choose(traced, 3, ["blocks.1", "head"])
    assert cut.names == ("characters", "blocks.1.attention_norm", "head")
    assert cut.largest_s is None
    assert [cut.stage_of(i) for i in (0, cut.starts[1] - 1, cut.starts[1], 27)] == [0, 0, 1, 2]
    assert cut.layers_of(2) == (27, 27)


@pytest.mark.parametrize(
    ("stages", "how", "message"),
    [
        (3, ["layer.1"], "split names 1 layers, which makes 2 stages; there are 3"),
        (2, ["layer.9"], "there is no layer 'layer.9'; there are layer.0, layer.1"),
        (3, ["layer.2", "layer.1"], "'layer.1' is not after the start of the stage before it"),
        (2, ["layer.0"], "'layer.0' is not after the start of the stage before it, 'layer.0'"),
        (2, ["layer.3"], "no stage can begin at 'layer.3': not here"),
        (
            4,
            "auto",
            "the model has 4 layers and can be cut at 2 boundaries, so into 3 stages at most",
        ),
        (2, "best", "split 'best' is not known"),
        (0, "auto", "at least 1 stage, not 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(stages: int, how: str | list, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        choose(line([1] * 4, refused=frozenset({2})), stages, how)


def test_auto_asks_for_times() -> None:
    with pytest.raises(SpecError, match="needs the measured times"):
        choose(trace(example("lenet")[0]), 2, "auto")
