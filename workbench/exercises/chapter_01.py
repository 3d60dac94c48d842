"""Exercises of chapter 1: the ring all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.exercises.answers import function, number, numbers, pair
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import between_ends_ms, calls_ms, finished, sent_bytes
from workbench.exercises.verdict import Finding, equal, near, timed
from workbench.experiment.network import Link, Network
from workbench.experiment.spec import Experiment

RING = Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=3, all_reduce="ring"
)
SECOND: Mapping[str, Any] = {"group": "default", "iteration": 1}  # the iteration that is looked at


def twice_the_ranks(answer: Mapping[str, float]) -> list[Finding]:
    """Judge bytes and hops by the record of eight ranks."""
    record = finished(RING.replace(ranks=8))
    sends = record.events.filter(kind="send", rank=3, **SECOND)
    return [
        near(
            "bytes that a rank sends in an iteration",
            sent_bytes(record, rank=3, **SECOND)[3],
            answer["bytes"],
            0.02,
            "2(n-1)/n of the gradient: 1.5 times with four ranks, 1.75 with eight, never 2.",
        ),
        equal(
            "sends of a rank in one all-reduce",
            sends["op"].value_counts()["count"].max(),
            answer["hops"],
            "2(n-1): for twice the ranks, more than twice the hops.",
        ),
    ]


def two_slow_links(answer: float) -> list[Finding]:
    """Judge the time from one all-reduce to the next by the record of two slow links."""
    slow = {pair: Link(latency="20 ms") for pair in ((0, 1), (2, 3))}
    record = finished(RING.replace(iterations=5, network=Network(links=slow)))
    why = (
        "Once round the ring are four steps and, with two slow links, 40 ms: 10 ms a step, "
        "six steps. With one slow link it was 20 ms for four steps. The slow flights do overlap, "
        "and yet each adds its share, because every chunk crosses both links in turn."
    )
    measured = between_ends_ms(record, group="default")
    return [timed("milliseconds from one all-reduce to the next", 60, measured, answer, 0.1, why)]


def narrow_link(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by the record of a link of 1 Mbit/s."""
    link = {(0, 1): Link(bandwidth="1 Mbit/s")}
    record = finished(RING.replace(iterations=1, network=Network(links=link)))
    calls = record.events.filter(kind="collective", group="default", rank=0)
    sizes = calls["nbytes"].to_list()
    (measured,) = calls_ms(record, group="default", nbytes=max(sizes))
    over = sum(1.5 * nbytes / 125e3 > 0.030 for nbytes in sizes)
    return [
        timed(
            "milliseconds for the tensor of 192,000 bytes",
            1.5 * max(sizes) / 125,
            measured,
            answer["ms"],
            0.05,
            "Rank 0 sends six chunks of a quarter each, one after the other: 1.5 L / B.",
        ),
        equal(
            "tensors that take longer than 30 ms",
            over,
            answer["tensors"],
            "1.5 L / B exceeds 30 ms from 2,500 bytes on. A latency is the same for every tensor; "
            "a bandwidth spares the small ones.",
        ),
    ]


def another_layer(answer: tuple[Callable[..., Any], float]) -> list[Finding]:
    """Judge a task, and the number of all-reduces in an iteration of it, by the record."""
    task, count = answer
    record = finished(RING.replace(task=task, iterations=40, lr=0.5))
    calls = record.events.filter(kind="collective", collective="all_reduce", rank=0, **SECOND)
    losses = record.result.losses
    return [
        equal(
            "all-reduces in an iteration of your class",
            6,
            len(calls),
            "One for each tensor of parameters: a weight and a bias for each of three layers.",
        ),
        equal("your number of them", len(calls), count, "The grader counts those of rank 0."),
        Finding(
            "it learns",
            losses[-1] < losses[0],
            f"a loss below that of the first iteration, {losses[0]:.3f}",
            f"{losses[-1]:.3f} after {len(losses)} iterations",
        ),
    ]


EXERCISES = (
    Exercise(
        name="01.1",
        title="Twice the ranks",
        difficulty=1,
        minutes=5,
        takes=numbers("bytes", "hops"),
        judge=twice_the_ranks,
        task="""
            LeNet's gradient has 246,824 bytes. With eight ranks in place of four: how many bytes
            does one rank send in an iteration, and how often does it send in one all-reduce?
            """,
        hint="""
            A chunk is an eighth of the tensor now, and a rank sends $2(n-1)$ chunks. In the
            chapter, `predicted("ring", 8)` says it to the byte; 2 % is near enough.
            """,
        solution="""
            $2 \\cdot 7/8 \\cdot 246{,}824 = 431{,}942$ bytes, 17 % more than with four ranks, in
            $2 \\cdot 7 = 14$ hops, more than twice as many.
            """,
    ),
    Exercise(
        name="01.2",
        title="Two slow links",
        difficulty=2,
        minutes=10,
        takes=number("milliseconds"),
        judge=two_slow_links,
        task="""
            Slow down two links of the ring of four, $(0, 1)$ and $(2, 3)$, by 20 ms each. How many
            milliseconds pass from the end of one all-reduce to the end of the next? (With one slow
            link it was 30.)
            """,
        hint="""
            How long does it take to go once round the ring? How many steps is that, and how many
            steps has an all-reduce?
            """,
        solution="""
            Once round are 4 steps and 40 ms, so a step lasts 10 ms in the long run. An all-reduce
            has 6 steps: 60 ms.
            """,
    ),
    Exercise(
        name="01.3",
        title="A narrow link",
        difficulty=2,
        minutes=10,
        takes=numbers("ms", "tensors"),
        judge=narrow_link,
        task="""
            Give the link $(0, 1)$ `bandwidth="1 Mbit/s"` in place of the latency. How many
            milliseconds does the all-reduce of the largest tensor (192,000 bytes) take? And how
            many of the ten tensors (600, 24, 9,600, 64, 192,000, 480, 40,320, 336, 3,360 and 40
            bytes) take longer than 30 ms?
            """,
        hint="""
            Rank 0 sends six chunks over this link, each a quarter of the tensor. 1 Mbit/s are
            125,000 bytes per second.
            """,
        solution="""
            $1.5 \\cdot 192{,}000 / 125{,}000 = 2.304$ s, that is 2,304 ms. $1.5 L / B > 30$ ms
            holds for $L > 2{,}500$ bytes: 4 tensors. Only large tensors suffer.
            """,
    ),
    Exercise(
        name="01.4",
        title="One more layer",
        difficulty=1,
        minutes=10,
        takes=pair(function("Quadrants"), number("all-reduces in an iteration")),
        judge=another_layer,
        task="""
            Give `Quadrants` a second hidden layer. How many all-reduces does each iteration now
            perform? Submit the class and the number. The grader trains the class and counts.
            """,
        hint="""
            One `nn.Linear(64, 64)` and one `nn.Tanh()` between those that are there. Each parameter
            tensor has an all-reduce of its own.
            """,
        solution="""
            ```python
            def model(self):
                return nn.Sequential(
                    nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
                )
            ```

            Six: a weight and a bias for each of three layers. (DDP puts small tensors together into
            buckets: chapter 9.)
            """,
    ),
)
