"""The rules that tell a bug from rounding, on numbers made up for each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from workbench.studies.drift.evidence import Evidence
from workbench.studies.drift.first_update import MEANS, WHOLE, Match, Start
from workbench.studies.drift.judge import judge
from workbench.studies.drift.measure import apart, distance, ulp

BITS = 2.0**29  # that float64 has more
LOSSES = np.full(50, 3e-8)
GOOD = Evidence(
    ranks=4,
    loss32=LOSSES,
    loss64=LOSSES / BITS,
    level=2.3,
    shares32={1: 2e-7, 10: 1e-6, 50: 4e-6},
    shares64={1: 2e-7 / BITS, 10: 1e-6 / BITS, 50: 4e-6 / BITS},
    identical={1: True, 10: True, 50: True},
    first=Match(WHOLE, 1.0, 1e-15, 1.0),
)


def with_bug(evidence: Evidence = GOOD, share: float = 0.1, **changes: Any) -> Evidence:
    """The same size of error in float32 and in float64, from the first update on."""
    loss = np.array([0.0, *np.full(49, 1e-3)])
    shares = dict.fromkeys(evidence.shares32, share)
    return replace(
        evidence,
        **{"loss32": loss, "loss64": loss, "shares32": shares, "shares64": shares, **changes},
    )


def test_what_shrinks_as_float64_is_finer_is_rounding() -> None:
    finding = judge(GOOD)
    assert finding.verdict == "rounding" and finding.since is None
    assert "2^29" in " ".join(finding.reasons)


def test_the_same_bits_are_not_a_difference() -> None:
    none = dict.fromkeys(GOOD.shares32, 0.0)
    zeros = np.zeros(50)
    same = replace(GOOD, shares32=none, shares64=none, loss32=zeros, loss64=zeros)
    assert judge(same).verdict == "no difference"


@pytest.mark.parametrize("grown", [1.0, 1e2, 1e4])
def test_rounding_that_grows_alike_in_both_dtypes_is_rounding_still(grown: float) -> None:
    """Each iteration of a chaotic model multiplies it; by 2^29 less it is less in float64."""
    growth = np.geomspace(1, grown, 50)
    shares = {k: 2e-7 * growth[k - 1] for k in (1, 10, 50)}
    evidence = replace(
        GOOD,
        loss32=LOSSES * growth,
        loss64=LOSSES * growth / BITS,
        shares32=shares,
        shares64={k: one / BITS for k, one in shares.items()},
    )
    assert judge(evidence).verdict == "rounding"


def test_chaos_that_has_eaten_float64_too_is_judged_by_its_beginning() -> None:
    growth = np.geomspace(1, 1e16, 50)
    finding = judge(
        replace(
            GOOD,
            loss32=np.minimum(LOSSES * growth, 1.0),
            loss64=np.minimum(1e-16 * growth, 1.0),
            shares32={1: 2e-7, 10: 1e-4, 50: 1.0},
            shares64={1: 4e-16, 10: 2e-13, 50: 0.9},
        )
    )
    assert finding.verdict == "rounding" and "up to 10 updates" in finding.reasons[0]


@pytest.mark.parametrize("share", [1.0, 1e-3, 1e-7, 1e-10])
def test_what_does_not_shrink_is_a_bug_however_small(share: float) -> None:
    finding = judge(with_bug(share=share, loss32=LOSSES, loss64=np.zeros(50)))
    assert (finding.kind, finding.since) == ("bug", 0)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (Match(WHOLE, 4.0, 1e-15, 1.0), "not divided by the number of ranks"),
        (Match(MEANS, 4.0, 1e-15, 0.98), "not divided by the number of ranks"),
        (Match(WHOLE, 3.0, 1e-15, 1.0), "gradients of 3 backward passes are added"),
        (Match(WHOLE, 2.5, 1e-15, 1.0), "2.5 times the right one: is it the learning rate?"),
        (Match(WHOLE, 0.25, 1e-15, 1.0), "once too often"),
        (Match(WHOLE, 0.5, 1e-15, 1.0), "0.5 times the right one"),
        (Match(MEANS, 1.0, 1e-15, 0.98), "means over parts of different size"),
        (Match("part 2", 1.0, 1e-15, 0.7), "the same part of the minibatch, rank 2's"),
        (Match(WHOLE, 1.0, 1e-4, 1.0), "about 4 digits"),
        (Match("", float("nan"), 1e-2, 0.2), "not what any part of the minibatch gives"),
        (None, "not what any part of the minibatch gives"),
    ],
)
def test_the_first_update_names_the_bug(first: Match | None, words: str) -> None:
    assert words in judge(with_bug(first=first)).verdict


def test_replicas_that_differ_are_a_bug_even_if_rank_0_is_right() -> None:
    finding = judge(replace(GOOD, identical={1: True, 10: False, 50: False}))
    assert finding.verdict == "bug: the ranks end with different parameters"
    assert "after 10 updates" in " ".join(finding.reasons)
    alone = with_bug(identical={1: False}, first=Match("part 0", 1.0, 1e-15, 0.7))
    assert "not averaged" in judge(alone).verdict
    early = replace(alone, first=Match("", 1.0, 1.0, 0.1), loss64=np.full(50, 1e-2))
    assert "begins with parameters of its own" in judge(early).verdict


@pytest.mark.parametrize("uneven", [None, 22])
def test_a_loss_that_jumps_in_float64_says_when_the_bug_began(uneven: int | None) -> None:
    loss = np.array([1e-16] * 23 + [1e-3] * 27)
    shares = {1: 2e-7, 10: 1e-6, 50: 1e-2}
    finding = judge(
        replace(
            GOOD,
            loss32=np.maximum(loss, 3e-8),
            loss64=loss,
            shares32=shares,
            shares64={1: 4e-16, 10: 2e-15, 50: 1e-2},
            uneven=uneven,
        )
    )
    assert finding.kind == "bug" and finding.since == 22
    assert ("evenly" in finding.which) == (uneven == 22)


def test_a_strategy_of_ours_that_differs_is_another_algorithm_and_an_error_is_told() -> None:
    assert judge(with_bug(ours=True)).kind == "another algorithm"
    error = "rank 1 raised:\nTraceback (most recent call last):\n  ...\nValueError: no\n"
    assert judge(replace(GOOD, error=error)).verdict == "failed: rank 1 raised: ValueError: no"
    assert judge(replace(GOOD, error="PeerLost")).verdict == "failed: PeerLost"


@pytest.mark.parametrize(
    ("task", "why"),
    [("draws", "draws random numbers"), ("couples", "couples the samples of a minibatch")],
)
def test_where_right_ranks_differ_from_one_process_it_is_said_that_a_bug_would_look_the_same(
    task: str, why: str
) -> None:
    loop = with_bug(**{task: True})
    finding = judge(replace(loop, one_rank=loop))
    assert finding.kind == "another algorithm" and why in finding.which
    assert finding.which.endswith("or a bug of the loop, which cannot be told from that here")
    assert judge(with_bug(one_rank=with_bug())).kind == "bug", "no such excuse"
    torn = replace(loop, identical={1: False})
    assert judge(replace(torn, one_rank=torn)).kind == "bug", "replicas must be equal all the same"


# ---- measuring


def test_a_ulp_is_the_spacing_of_float32_at_the_value() -> None:
    values = np.array([1.0, -1.0, 1.5, 2.0, 1000.0])
    assert ulp(values)[:4].tolist() == [2.0**-23, 2.0**-23, 2.0**-23, 2.0**-22]
    small = ulp(np.array([1024.0, 0.0, 1e-30]))
    assert small.tolist() == [2.0**-13, 2.0**-23, 2.0**-23]
    assert (ulp(np.zeros(3)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_count_all_values(dtype: torch.dtype) -> None:
    before = {"a": np.zeros(3), "b": np.full((2, 2), 1.0)}
    should = {"a": torch.ones(3, dtype=dtype), "b": torch.full((2, 2), 2.0, dtype=dtype)}
    parameters = {name: value.clone() for name, value in should.items()}
    parameters["a"][1] += 3 * 2.0**-23
    far = distance(parameters, should, before)
    assert (far.ulps_max, far.ulps_median, far.values) == (3.0, 0.0, 7)
    assert far.share == pytest.approx(3 * 2.0**-23 / 7**0.5, rel=1e-6)
    with pytest.raises(ValueError, match="lack b"):
        distance({"a": parameters["a"]}, should, before)
    assert apart([1.0, 2.5], [1.0, 2.0, 3.0]).tolist() == [0.0, 0.5]


def test_the_gradient_that_fits_an_update_is_named_with_its_scale() -> None:
    draw = np.random.default_rng(0)
    each = {f"part {rank}": draw.normal(size=12) for rank in range(3)}
    whole = 0.5 * each["part 0"] + 0.3 * each["part 1"] + 0.2 * each["part 2"]
    start = Start(
        {"w": draw.normal(size=(3, 4))}, None, {WHOLE: whole, MEANS: sum(each.values()) / 3, **each}
    )
    for what, gradient in start.gradients.items():
        for scale in (1.0, 3.0, -0.5):
            after = {"w": start.parameters["w"] - 0.1 * scale * gradient.reshape(3, 4)}
            match = start.match(after, 0.1)
            assert match.what == what and match.scale == pytest.approx(scale)
            assert match.left < 1e-12
    assert start.match({"w": draw.normal(size=(3, 4))}, 0.1).what == ""
    assert start.match(start.parameters, 0.1).what == ""
