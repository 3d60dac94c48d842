"""Exercises of chapter 8: partitions, a bug or rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.exercises.answers import function, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.verdict import Finding, equal
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


EXERCISES = (
    Exercise(
        name="08.1",
        title="A minibatch for three ranks",
        difficulty=2,
        minutes=10,
        takes=number("samples, from 30 to 120"),
        judge=a_size_for_three,
        task="""
            With which minibatch from 30 to 120 samples are the first cell's four lines right
            throughout an epoch on *three* ranks? (There are 1,437 samples. And on two ranks?)
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
            Write the first cell's loop so that it is right for every minibatch, also for one that
            the ranks cannot share evenly. The grader trains in float32 and float64 beside one
            process.
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
)
