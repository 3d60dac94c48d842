"""Local SGD, DiLoCo, top-k and fusion over real processes do what their papers say.

Each is compared with the same algorithm written down in one process, replica by replica, and where
it must be data parallel, with sequential training.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import workbench as wb
from tests.digits import Digits
from tests.live import LONG, lenet, training
from tests.pairwise import Case, first, pairwise, sampled
from tests.training.communication_efficient.fewer_words import ITERATIONS, check_equal, done
from workbench.laws import replicas_identical
from workbench.strategies.top_k import largest
from workbench.tasks.lenet_digits import Task
from workbench.training.communication_efficient import theory
from workbench.training.communication_efficient.cycles import Coordinator
from workbench.user_code import source


@cache
def sequential(optimizer: str, momentum: float, dtype: str, batch_size: int) -> wb.Result:
    exp = lenet(
        strategy="sequential",
        ranks=1,
        iterations=ITERATIONS,
        dtype=dtype,
        batch_size=batch_size,
        optimizer=optimizer,
        momentum=momentum,
        lr=0.02,
        threads=1,
        record=False,
    )
    return wb.run(exp).wait(timeout=60)


# -- what is data parallel in another dress --


SAME = {
    "local_sgd": [{"every": 1}, {"every": 50, "warmup": ITERATIONS}],
    "diloco": [{"every": 1, "outer_lr": 1.0, "outer_momentum": 0.0}],
    "top_k": [{"ratio": 1.0}, {"ratio": 1.0, "feedback": False}],
    "fusion": [
        {},
        {"threshold": "0 MB"},
        {"threshold": "50 kB"},
        {"threshold": "1 B", "cycle": "1 ms"},
        {"threshold": "50 kB", "cycle": "300 us"},
    ],
}
FACTORS: dict[str, list[Any]] = {
    "way": [(strategy, options) for strategy, each in SAME.items() for options in each],
    "ranks": [2, 3, 4, 5, 8],
    "batch_size": [64, 10, 5],  # 5 leaves some of 8 ranks without a sample
    "momentum": [0.0, 0.9],
    "dtype": ["float64", "float32"],
}
HARD = [
    {"way": ("local_sgd", {"every": 1}), "momentum": 0.9},
    {"way": ("diloco", SAME["diloco"][0]), "ranks": 3},
    {"way": ("top_k", {"ratio": 1.0}), "batch_size": 10},
    {"way": ("fusion", {"threshold": "50 kB"}), "ranks": 3},
]


def name_of(case: Case) -> str:
    strategy, options = case["way"]
    return "-".join(map(str, [strategy, *options.values(), *list(case.values())[1:]]))


@pytest.mark.parametrize("case", sampled(pairwise(FACTORS), *HARD), ids=name_of)
def test_it_is_data_parallel(case: Case) -> None:
    (strategy, options), rest = case["way"], {k: v for k, v in case.items() if k != "way"}
    reference = sequential("sgd", case["momentum"], case["dtype"], case["batch_size"])
    result = done(strategy=strategy, options=options, lr=0.02, **rest)
    check_equal(result, reference.losses, reference.parameters, case["dtype"])


@pytest.mark.full
def test_averages_of_adam_are_not_data_parallel() -> None:
    """So the test above can fail: here the mean of the steps is not the step of the mean."""
    reference = sequential("adam", 0.0, "float64", 64)
    result = done(
        strategy="local_sgd",
        options={"every": 1},
        ranks=2,
        optimizer="adam",
        lr=0.02,
        batch_size=64,
        dtype="float64",
    )
    with pytest.raises(AssertionError, match="losses differ"):
        check_equal(result, reference.losses, reference.parameters, "float64")


# -- what is not sent is kept --


def test_the_largest_go_and_nothing_is_lost() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    values, indices = largest(x, 30)
    left = x.clone()
    left[indices] = 0
    assert len(set(indices.tolist())) == 30 and left.abs().max() <= values.abs().min()
    assert torch.equal(left.index_add(0, indices, values), x)


class Slope:
    """The gradient is the same at every sample and everywhere: 1, 1/2, ... 1/16."""

    def model(self) -> torch.nn.Module:
        model = torch.nn.Linear(16, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        return model

    def dataset(self, split: str) -> Any:
        return torch.utils.data.TensorDataset(1 / torch.arange(1.0, 17).expand(32, -1))

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return model(batch[0]).mean()


@pytest.mark.full
@pytest.mark.parametrize("feedback", first(1, [True, False]))
def test_small_entries_come_late_with_feedback_and_never_without(feedback: bool) -> None:
    exp = wb.Experiment(
        strategy="top_k",
        task=Slope,
        ranks=4,
        iterations=200,
        batch_size=8,
        lr=1.0,
        dtype="float64",
        options={"ratio": 1 / 16, "feedback": feedback},
    )
    moved = -wb.run(exp).wait(timeout=60).parameters["weight"].view(-1)
    slope = 1 / torch.arange(1.0, 17, dtype=torch.float64)
    late = (200 * slope - moved) / slope  # iterations' worth that is not in yet
    if feedback:  # one entry of sixteen a time: each waits until its sum is the largest
        assert late.min() >= -1e-9 and late.max() < 60
        assert late[0] < 4
    else:
        assert moved[0] == 200 and (moved[1:] == 0).all()


@pytest.mark.parametrize("way", first(1, SAME))
def test_a_layer_that_no_sample_goes_through_stays_as_it_was(way: str) -> None:
    fields = {
        "task": "mlp_layers",
        "task_options": {"layers": 3, "width": 16, "unused": 1},
        "lr": 0.02,
        "batch_size": 10,
        "dtype": "float64",
    }
    reference = wb.run(
        lenet(strategy="sequential", **fields, ranks=1, threads=1, iterations=ITERATIONS)
    ).wait(60)
    for options in SAME[way]:
        if "every" in options and options["every"] > ITERATIONS:
            continue  # data parallel's own warm-up
        result = done(strategy=way, options=options, ranks=3, **fields)
        check_equal(result, reference.losses, reference.parameters, "float64")


# -- bytes --


SIZES = [one.numel() for one in Task().model().parameters()]


@pytest.mark.parametrize("ranks", first(1, [3, 2, 4, 8]))
def test_bytes_are_as_the_formulas_say(ranks: int) -> None:
    def sent(strategy: str, iterations: int, **options: Any) -> list[int]:
        result = done(strategy=strategy, iterations=iterations, options=options, ranks=ranks)
        return [result.bytes_sent[rank] for rank in range(ranks)]

    assert sent("data_parallel", 4) == theory.data_parallel(ranks, 4, SIZES)
    assert sent("local_sgd", 11, every=3, warmup=2) == theory.local_sgd(ranks, 11, SIZES, 3, 2)
    assert sent("diloco", 11, every=3) == theory.local_sgd(ranks, 11, SIZES, 3)
    assert sent("top_k", 4, ratio=0.03) == theory.top_k(ranks, 4, SIZES, 0.03)
    buffers = theory.fused(SIZES[::-1], 50_000)
    assert sent("fusion", 4, threshold="50 kB") == theory.data_parallel(ranks, 4, buffers)
    cycles = sent("fusion", 4, threshold="0 MB", cycle="1 ms")
    assert cycles == theory.data_parallel(ranks, 4, SIZES)  # what is agreed upon is not counted


@pytest.mark.full
def test_every_eighth_iteration_is_an_eighth_of_the_bytes() -> None:
    whole = done(strategy="data_parallel", ranks=4, iterations=60).bytes_sent
    bytes_sent = done(strategy="local_sgd", ranks=4, iterations=60).bytes_sent
    message = max(theory.all_reduced(4, [sum(SIZES)]))
    for rank, sent in bytes_sent.items():
        assert abs(whole[rank] / 8 - sent) <= message


def test_top_k_sends_less_only_below_one_in_p() -> None:
    for ranks in (2, 4, 8):
        dense, threshold = (
            max(theory.data_parallel(ranks, 1, SIZES)),
            theory.top_k_pays_below(ranks),
        )
        assert max(theory.top_k(ranks, 1, SIZES, threshold * 0.98)) < dense
        assert max(theory.top_k(ranks, 1, SIZES, threshold * 1.02)) > dense


# -- what is recorded --


def test_averagings_are_named_and_outside_of_them_nothing_is_sent() -> None:
    for strategy in ("local_sgd", "diloco"):
        run = wb.run(lenet(strategy=strategy, ranks=3, iterations=10, options={"every": 4}))
        run.wait(timeout=60)
        p = pl.col
        rows = run.events.filter(p("kind") == "collective", p("group") == "default")
        averagings = rows.select("rank", "iteration", p("name").cast(pl.String)).sort(
            "rank", "iteration"
        )
        expected = [(r, c, f"average {c // 4 + 1}") for r in range(3) for c in (3, 7)]
        assert averagings.rows() == expected
        sketches = run.events.filter(p("name").cast(pl.String) == "sketch")
        assert sketches.height == 3 * 10 * 8


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["local_sgd", "diloco"]))
def test_a_rank_that_is_ahead_stops_where_the_others_do(strategy: str) -> None:
    """Between two averagings no rank waits for rank 0, which decides where a run stops."""
    for at in (2, 9):
        run = wb.run(
            lenet(
                strategy=strategy,
                ranks=3,
                iterations=LONG,
                options={"every": 6},
                faults=[wb.Slow(rank=0, factor=8)],
            )
        )
        training(run, at)
        run.stop()
        result = run.wait(timeout=90)
        assert at <= len(result.losses) < LONG and not replicas_identical(result.digests)
        ends = run.events.group_by("rank").agg(pl.col("iteration").max())
        assert set(ends["iteration"]) == {len(result.losses) - 1}


def test_what_cannot_be_is_refused() -> None:
    for strategy, options, reason in (
        ("local_sgd", {"every": 0}, "every = 0: must be 1 or more"),
        ("local_sgd", {"warmup": -1}, "warmup = -1"),
        ("diloco", {"outer_lr": 0}, "outer_lr = 0"),
        ("diloco", {"outer_momentum": 1}, "outer_momentum = 1"),
        ("top_k", {"ratio": 0}, "ratio = 0"),
        ("top_k", {"ratio": 1.5}, "ratio = 1.5"),
        ("fusion", {"threshold": "64"}, "threshold: size '64' has no unit"),
        ("fusion", {"cycle": "2 MB"}, "cycle: duration '2 MB'"),
    ):
        with pytest.raises(wb.SpecError, match=reason):
            wb.Experiment(strategy=strategy, options=options)


# -- what is wrong on purpose --


WRONG = {
    "the memory is thrown away": ("top_k", "kept[indices] = 0", "kept.zero_()"),
    "what was sent is kept too": ("top_k", "kept[indices] = 0", "pass"),
    "the outer step goes the wrong way": ("diloco", "start - parameter", "parameter - start"),
    "the inner optimizer goes on from where it was": ("diloco", "parameter.copy_(start)", "pass"),
    "no rank is weighted": ("local_sgd", "weight=len(mine) * job.ranks / len(minibatch.ids)", ""),
    "one buffer is left out": ("fusion", "    if fused:\n        yield fused\n", ""),
}


def mutant(strategy: str, old: str, new: str, folder: Path) -> str:
    text = source.text_of("strategies", strategy)
    assert text.count(old) == 1
    file = folder / f"wrong_{strategy}.py"
    file.write_text(text.replace(old, new))
    return f"{file}:train"


@pytest.mark.parametrize("what", first(1, WRONG))
def test_a_mutant_fails(what: str, tmp_path: Path) -> None:
    strategy, old, new = WRONG[what]
    common: dict[str, Any] = {"ranks": 3, "batch_size": 10, "dtype": "float64", "record": False}
    options = {"top_k": {"ratio": 0.02}, "fusion": {"threshold": "50 kB"}}.get(
        strategy, {"every": 4}
    )
    right = done(strategy=strategy, options=options, **common)
    exp = lenet(
        strategy=mutant(strategy, old, new, tmp_path),
        options=options,
        iterations=ITERATIONS,
        **common,
    )
    wrong = wb.run(exp).wait(timeout=60)
    with pytest.raises(AssertionError, match="differ"):
        check_equal(wrong, right.losses, right.parameters, "float64")


# -- fusion's cycles: which tensors are ready on all ranks --


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_coordinator_answers_each_tensor_once_after_the_last_report_of_it(ranks: int) -> None:
    draw = random.Random(ranks)
    for _ in range(200):
        tensors = draw.randrange(1, 12)
        left = [draw.sample(range(tensors), tensors) for _ in range(ranks)]
        coordinator, reports, answers = Coordinator(ranks, tensors), set(), list[int]()
        while any(left):
            news = [[mine.pop() for _ in range(draw.randint(0, len(mine)))] for mine in left]
            reports |= {(rank, one) for rank, some in enumerate(news) for one in some}
            answers += coordinator.answer(news)
            everywhere = {t for t in range(tensors) if {(r, t) for r in range(ranks)} <= reports}
            assert {*answers} == everywhere
        assert sorted(answers) == list(range(tensors))


class Crossed(torch.nn.Module):
    """Ranks make the gradients of two branches in opposite orders; that of the first layer, which
    is registered last, comes last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.head, self.left, self.right, self.trunk = (
            torch.nn.Linear(64, out) for out in (10, 64, 64, 64)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.trunk(x.flatten(1)).tanh()
        order = [self.left, self.right][:: 1 if torch.distributed.get_rank() % 2 else -1]
        a, b = (branch(x).tanh() for branch in order)
        return self.head(a + b)


class CrossedDigits(Digits):
    def model(self) -> torch.nn.Module:
        return Crossed()


def test_tensors_ready_in_other_orders_are_shared_while_backward_goes_on() -> None:
    fields: dict[str, Any] = {"task": CrossedDigits, "iterations": 6, "dtype": "float64"}
    fields |= {"batch_size": 48, "lr": 0.1}
    alone = wb.run(wb.Experiment(strategy="data_parallel", ranks=3, **fields)).wait(timeout=90)
    options = {"threshold": "0 MB", "cycle": "1 ms"}
    exp = wb.Experiment(strategy="fusion", ranks=3, options=options, pad_compute="240 ms", **fields)
    run = wb.run(exp)
    assert run.wait(timeout=90).losses == pytest.approx(alone.losses, rel=1e-12)
    calls = run.events.filter(kind="collective", group="default").sort("start_ns")
    names = calls.group_by("rank", "iteration", maintain_order=True).agg("name")
    assert names.height == 3 * 6 and (names["name"].list.len() == 8).all()
    assert names.group_by("iteration").agg(pl.col("name").n_unique())["name"].max() == 1
    ends = run.events.filter(kind="backward").group_by("rank", "iteration").agg(pl.max("end_ns"))
    early = calls.join(ends, on=["rank", "iteration"], suffix="_backward").filter(
        pl.col("start_ns") < pl.col("end_ns_backward")
    )
    # Each tensor but those of the first layer can be, however late the others come to a cycle.
    assert {name.partition(".")[0] for name in early["name"]} >= {"head", "left", "right"}
    rounds = run.events.filter(kind="collective", group="control", name="ready on all ranks")
    assert rounds.height >= 2 * 3 * 6, "each negotiation is recorded"
