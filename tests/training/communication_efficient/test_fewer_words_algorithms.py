"""Communication-efficient training does what its algorithms do, written out in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import workbench as wb
from tests.pairwise import first
from tests.training.communication_efficient.fewer_words import ITERATIONS, check_equal, done
from workbench.rank.batches import Minibatches, partition
from workbench.tasks.lenet_digits import Task

RANKS, BATCH = 3, 10  # 4, 3 and 3 samples
Flat = torch.Tensor


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two that wait for each other crawl on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def replicas(
    ranks: int, mixed: Callable[[int, list[Flat], list[Flat], list[float]], list[Flat]]
) -> tuple[list[float], Flat]:
    """Losses, and the mean of the replicas at the end.

    mixed(iteration, the replicas θ, their gradients, their shares of the minibatch) -> the new θ
    """
    torch.manual_seed(0)
    task = Task()
    model = task.model().double()
    data = task.dataset("train")
    minibatches = Minibatches(len(data), BATCH, 0)
    thetas = [torch.nn.utils.parameters_to_vector(model.parameters()).detach()] * ranks
    losses = []
    for iteration in range(ITERATIONS):
        ids = minibatches.ids(iteration)
        gradients, shares, each = list[Flat](), list[float](), list[float]()
        for rank, theta in enumerate(thetas):
            torch.nn.utils.vector_to_parameters(theta, model.parameters())
            mine = partition(ids, rank, ranks)
            batch = torch.utils.data.default_collate([data[int(i)] for i in mine])
            loss = task.loss(model, [batch[0].double(), batch[1]])
            parts = torch.autograd.grad(loss, [*model.parameters()])
            gradients.append(torch.cat([one.reshape(-1) for one in parts]))
            shares.append(len(mine) / len(ids))
            each.append(float(loss.detach()))
        losses.append(float(np.dot(each, shares)))
        thetas = mixed(iteration, thetas, gradients, shares)
    return losses, torch.stack(thetas).mean(0)


def flat(result: wb.Result) -> Flat:
    """In the order of the model, which has no buffers."""
    return torch.cat([result.parameters[name].reshape(-1) for name in Task().model().state_dict()])


def check_replicas(result: wb.Result, expected: tuple[list[float], Flat]) -> None:
    losses, theta = expected
    check_equal(result, losses, result.parameters, "float64")
    assert (flat(result) - theta).abs().max() <= 1e-12


def mean(thetas: list[Flat]) -> Flat:
    return sum(thetas, torch.zeros(())) / len(thetas)


@pytest.mark.parametrize(("every", "warmup"), first(1, [(4, 10), (50, 0), (4, 0), (5, 0)]))
def test_local_sgd(every: int, warmup: int) -> None:
    """With iterations left over at the end, and with no averaging but the last."""
    lr = 0.05

    def mixed(t: int, thetas: list[Flat], gs: list[Flat], shares: list[float]) -> list[Flat]:
        moves = [RANKS * share * g for g, share in zip(gs, shares, strict=True)]
        if t < warmup:
            return [theta - lr * mean(moves) for theta in thetas]
        after = [theta - lr * move for theta, move in zip(thetas, moves, strict=True)]
        return [mean(after)] * RANKS if (t - warmup + 1) % every == 0 else after

    result = done(
        strategy="local_sgd",
        options={"every": every, "warmup": warmup},
        ranks=RANKS,
        batch_size=BATCH,
        lr=lr,
        dtype="float64",
    )
    check_replicas(result, replicas(RANKS, mixed))


@pytest.mark.parametrize(
    ("every", "rate", "momentum"), first(1, [(4, 0.7, 0.9), (5, 0.5, 0.0), (1, 1, 0.5)])
)
def test_diloco(every: int, rate: float, momentum: float) -> None:
    """Nesterov's step on the mean move: v ← μ·v + Δ, θ ← θ - η·(Δ + μ·v)."""
    lr, state = 0.05, dict[str, Flat]()

    def mixed(t: int, thetas: list[Flat], gs: list[Flat], shares: list[float]) -> list[Flat]:
        old = state.setdefault("old", thetas[0])
        after = [
            theta - lr * RANKS * share * g
            for theta, g, share in zip(thetas, gs, shares, strict=True)
        ]
        if (t + 1) % every:
            return after
        move = old - mean(after)
        state["v"] = momentum * state.get("v", torch.zeros_like(move)) + move
        state["old"] = old - rate * (move + momentum * state["v"])
        return [state["old"]] * RANKS

    options = {"every": every, "outer_lr": rate, "outer_momentum": momentum}
    result = done(
        strategy="diloco", options=options, ranks=RANKS, batch_size=BATCH, lr=lr, dtype="float64"
    )
    check_replicas(result, replicas(RANKS, mixed))


@pytest.mark.full
def test_an_outer_step_of_one_is_the_mean_of_the_parameters() -> None:
    common = {"ranks": 4, "batch_size": 10, "momentum": 0.5, "dtype": "float64"}
    local = done(strategy="local_sgd", options={"every": 5}, **common)
    outer = {"every": 5, "outer_lr": 1.0, "outer_momentum": 0.0}
    result = done(strategy="diloco", options=outer, **common)
    check_equal(result, local.losses, local.parameters, "float64")


@pytest.mark.parametrize("feedback", first(1, [True, False]))
def test_top_k(feedback: bool) -> None:
    lr, ratio, kept = 0.05, 0.02, dict[int, Flat]()

    def mixed(t: int, thetas: list[Flat], gs: list[Flat], shares: list[float]) -> list[Flat]:
        total = torch.zeros_like(thetas[0])
        for rank, (g, share) in enumerate(zip(gs, shares, strict=True)):
            whole = kept.get(rank, 0) + share * g
            least = whole.abs().topk(round(ratio * len(whole))).values[-1]
            sent = torch.where(whole.abs() >= least, whole, 0)
            kept[rank] = whole - sent if feedback else torch.zeros_like(whole)
            total += sent
        return [theta - lr * total for theta in thetas]

    options = {"ratio": ratio, "feedback": feedback}
    result = done(
        strategy="top_k", options=options, ranks=RANKS, batch_size=BATCH, lr=lr, dtype="float64"
    )
    check_replicas(result, replicas(RANKS, mixed))
