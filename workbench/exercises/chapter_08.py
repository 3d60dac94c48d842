"""Exercises of chapter 8: partitions, a bug or rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.exercises.answers import function, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.on_ranks import called
from workbench.exercises.verdict import Finding, equal, near
from workbench.studies.drift.drift import drift
from workbench.studies.partition import partition


def listing(rank: int, model: Any, minibatches: Any) -> None:
    """Train as the first cell of the chapter does."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = dist.get_world_size()
    for images, labels in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(images[rank::size]), labels[rank::size]).backward()  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


def a_size_for_three(answer: float) -> list[Finding]:
    """Judge a minibatch by a whole epoch of the four lines on three ranks."""
    size = int(answer)
    if size != answer or not 30 <= size <= 120:
        return [Finding("minibatch", False, "a whole number from 30 to 120", f"{answer:g}")]
    epoch = -(-1437 // size) + 1
    report = drift(listing, ranks=3, batch_size=size, iterations=epoch, mutants=False)
    report.wait(300, progress=False)
    why = (
        "1,437 = 3 · 479. With any multiple of 3 all minibatches divide by three, the last one "
        "too. On two ranks no size does: 1,437 is odd, so one minibatch of an epoch is."
    )
    good = report.findings["listing"].kind != "bug"
    return [
        Finding("an epoch on three ranks", good, "no bug, rounding at most", report.verdict, why)
    ]


def dealt(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by what torch's own samplers deal out."""
    cut = partition(30, batch_size=10, ranks=4)
    first = str(cut).partition("minibatch 1:")[0]
    each = [len(line.split()[2:]) for line in first.splitlines() if "rank " in line]
    together = sum(each)
    why = (
        f"10 does not divide by 4: each rank's BatchSampler has 10 // 4 = {each[0]}, and all "
        f"together take {together} of 10. A learning rate found for 10 is 10/{together} too large."
    )
    return [
        equal("samples of each rank", each[0], answer["each"], why),
        equal("samples of all ranks", together, answer["together"]),
    ]


def mended(loop: Callable[..., Any]) -> list[Finding]:
    """Judge a loop by drift, over an epoch whose last minibatch is uneven."""
    report = drift(loop, ranks=2, batch_size=64, iterations=30, mutants=False)
    report.wait(300, progress=False)
    good = report.findings[report.subjects[0].name].kind in ("rounding", "no difference", "exact")
    why = (
        "In iteration 23 the ranks have 15 and 14 samples. A mean of their means weighs the 14 "
        "more; weighed by the number of samples, it is the mean of all 29."
    )
    return [Finding("30 updates on two ranks", good, "rounding at most", report.verdict, why)]


TOKENS = (9, 2, 4)  # of the ranks
UNEVEN = """
import torch
w = torch.ones(3, dtype=torch.float64, requires_grad=True)
x = torch.arange(3.0 * TOKENS[rank], dtype=torch.float64).reshape(-1, 3) + rank
f((x @ w) ** 2).backward()
dist.all_reduce(w.grad)
w.grad /= size
"""


def own_share(loss: Callable[..., Any]) -> list[Finding]:
    """Judge the scalar that each rank calls ``backward`` on by the average of its gradients."""
    import torch

    rows = [
        torch.arange(3.0 * n, dtype=torch.float64).reshape(-1, 3) + rank
        for rank, n in enumerate(TOKENS)
    ]
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    ((torch.cat(rows) @ w) ** 2).mean().backward()  # type: ignore[no-untyped-call]
    assert w.grad is not None
    right = w.grad.tolist()
    before = UNEVEN.replace("TOKENS", str(TOKENS))
    values, _ = called(loss, len(TOKENS), "w.grad.tolist()", before=before)
    why = (
        "All losses summed, over all tokens, is the mean. DDP divides the ranks' sum by their "
        "number p, so each rank has to multiply by p what it would otherwise add."
    )
    off = max(abs(a - b) / abs(b) for a, b in zip(values[0], right, strict=True))
    return [
        Finding(
            "averaged gradient",
            off < 1e-9,
            "that of the mean over 15 tokens",
            f"{off:.1e} off",
            why,
        )
    ]


def clipped_rightly(clip: Callable[..., Any]) -> list[Finding]:
    """Judge by the gradients that three ranks have afterwards."""
    import torch

    grown = [
        torch.arange(1.0, 5.0, dtype=torch.float64) * (-1.0) ** rank * (rank + 2)
        for rank in range(3)
    ]
    mean = torch.stack(grown).mean(0)
    limit = 1.0
    right = mean * limit / float(mean.norm())
    before = """
import torch
p = [torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))]
p[0].grad = torch.arange(1.0, 5.0, dtype=torch.float64) * (-1.0) ** rank * (rank + 2)
f(p, 1.0)
"""
    values, _ = called(clip, 3, "p[0].grad.tolist()", before=before)
    received = [torch.tensor(one, dtype=torch.float64) for one in values]
    same = all(torch.equal(one, received[0]) for one in received)
    off = float((received[0] - right).norm())
    why = "The norm to bound is that of the minibatch's gradient, which is there after the sum."
    return [
        equal("replicas that stay alike", True, same),
        near("norm afterwards", limit, float(received[0].norm()), 1e-5, why),
        Finding("direction", off < 1e-5, "that of the mean", f"{off:.1e} away from it"),
    ]


def as_far(answer: float) -> list[Finding]:
    """Judge by the first update of a loop that forgets to divide."""
    report = drift(eight_passes, batch_size=64, iterations=1, at=(1,), mutants=False)
    report.wait(300, progress=False)
    share = report.table.filter(dtype="float64")["share"].item()
    why = (
        "Eight means of eighths are added: eight times the mean. The update is off by seven of it."
    )
    return [near("off, in updates", round(share, 6), answer, 0.001, why)]


def eight_passes(
    rank: int, size: int, model: Any, minibatches: Any, optimizer: Any, loss: Any
) -> None:
    """Accumulate over microbatches of four samples, and divide by the ranks only."""
    import torch.distributed as dist

    for images, labels in minibatches:
        optimizer.zero_grad()
        for at in range(rank, 16, size):
            loss((images[at::16], labels[at::16])).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


EXERCISES = (
    Exercise(
        name="08.1",
        title="A minibatch for three ranks",
        difficulty=2,
        minutes=10,
        takes=number("samples, from 30 to 120"),
        judge=a_size_for_three,
        task="""
            Take the four lines in the first cell of chapter 8, where each rank averages over its
            own samples. With which minibatch from 30 to 120 samples are they right throughout an
            epoch of 1,437 samples on *three* ranks? Does such a minibatch exist for two ranks?
            """,
        hint="Every minibatch must divide by three, the last one of the epoch too.",
        solution="""
            Any multiple of 3, such as 60: 1,437 is one, so what is left at the end is one too. On
            two ranks none is right: 1,437 is odd.
            """,
    ),
    Exercise(
        name="08.2",
        title="Ten samples for four ranks",
        difficulty=1,
        minutes=5,
        takes=numbers("each", "together"),
        judge=dealt,
        task="""
            `wb.partition(30, batch_size=10, ranks=4)`: how many samples of the first minibatch does
            each rank take, and how many do all ranks take together?
            """,
        hint="Each rank's `BatchSampler` has a whole number of samples.",
        solution="Two each, eight together. A learning rate for ten is too large for eight.",
    ),
    Exercise(
        name="08.3",
        title="Mend the four lines",
        difficulty=2,
        minutes=15,
        takes=function("loop(rank, model, minibatches)"),
        judge=mended,
        task="""
            Write the loop in the first cell of chapter 8 so that it is right for every minibatch,
            also for one that the ranks cannot share evenly. The grader trains in float32 and in
            float64, and compares with one process.
            """,
        hint="Weigh each rank's loss by its number of samples, over that of the whole minibatch.",
        solution="""
            ```python
            def loop(rank, model, minibatches):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                size = dist.get_world_size()
                for images, labels in minibatches:
                    optimizer.zero_grad()
                    mine, own = images[rank::size], labels[rank::size]
                    loss = F.cross_entropy(model(mine), own, reduction="sum") / len(labels)
                    loss.backward()
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
                    optimizer.step()
            ```
            """,
    ),
    Exercise(
        name="08.4",
        title="As far off as seven updates?",
        difficulty=1,
        minutes=5,
        takes=number("lengths of the right update"),
        judge=as_far,
        task="""
            Two ranks, minibatches of 64, plain SGD. Each rank makes *eight* passes over four
            samples each, adds up the gradients, and does not divide by eight. How far from the
            right parameters is the loop after one update, in lengths of the right update?
            """,
        hint="What is the sum of eight means, in units of the mean of them?",
        solution="Seven: the update is eight times the right one, in the same direction.",
    ),
    Exercise(
        name="08.5",
        title="Clip it where it is whole",
        difficulty=2,
        minutes=10,
        takes=function("clip(parameters, limit)"),
        judge=clipped_rightly,
        task="""
            `clip(parameters, limit)` is called on each of three ranks after `backward`, and has to
            do the rest: afterwards every rank's `grad` is the ranks' average, with a norm of at
            most `limit`.
            """,
        hint="Which gradient's norm is to be bounded, and when is it there?",
        solution="""
            ```python
            def clip(parameters, limit):
                for parameter in parameters:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= dist.get_world_size()
                torch.nn.utils.clip_grad_norm_(parameters, limit)
            ```
            """,
    ),
    Exercise(
        name="08.6",
        title="What does each rank call backward on?",
        difficulty=3,
        minutes=15,
        takes=function("loss(each)"),
        judge=own_share,
        task="""
            DDP adds the ranks' gradients and divides by their number; you cannot change that. Three
            ranks have 9, 2 and 4 tokens. `loss(each)` gets the losses of this rank's tokens and
            returns the number that the rank calls `backward` on, so that DDP's average is the
            gradient of the mean over all 15.
            """,
        hint="Sum the number of tokens over the ranks. What does DDP's division take away?",
        solution="""
            ```python
            def loss(each):
                tokens = torch.tensor(each.numel())
                dist.all_reduce(tokens)
                return each.sum() * dist.get_world_size() / tokens
            ```
            """,
    ),
)
