"""Exercises of chapter 10: speed-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.curves import select
from workbench.exercises.answers import function, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.grade import call
from workbench.exercises.recorded import finished
from workbench.exercises.verdict import Finding, equal, near, timed
from workbench.experiment.faults import Slow
from workbench.experiment.network import Link, Network
from workbench.experiment.spec import Experiment
from workbench.rank.batches import Minibatches, partition
from workbench.runs.run import Run
from workbench.tasks.mlp_layers import Task
from workbench.theory import cost_model

WHOLE_MS = 240  # of a minibatch on one rank
TENSORS = [one.nbytes for one in Task(layers=2, width=112).model().parameters()]
FAR = Experiment(
    strategy="data_parallel",
    task="mlp_layers",
    task_options={"layers": 2, "width": 112},
    ranks=4,
    batch_size=64,
    iterations=5,
    threads=1,
    all_reduce="ring",
)


def communication_ms(algorithm: str, ranks: int, bytes_per_second: float) -> float:
    """Return C(p) of the chapter in milliseconds, over links without latency."""
    cost = cost_model.Cost(0.0, 1 / bytes_per_second, 0.0)
    return sum(cost_model.predict(algorithm, ranks, nbytes, cost) for nbytes in TENSORS) * 1e3


def iteration_ms(record: Run) -> float:
    """Return the median time from the start of an iteration to that of the next, at rank 0."""
    starts = record.events.filter(kind="load", rank=0).sort("iteration")["start_ns"]
    median: Any = starts.diff().drop_nulls().median()
    return float(median) / 1e6


def padded(ranks: int, mbit_s: float, **more: Any) -> float:
    """Return the measured milliseconds of an iteration with so many ranks."""
    links = Network(bandwidth=f"{mbit_s:.3f} Mbit/s")
    pad = f"{WHOLE_MS / ranks:g} ms"
    return iteration_ms(finished(FAR.replace(ranks=ranks, pad_compute=pad, network=links, **more)))


def threefold(answer: float) -> list[Finding]:
    """Judge the bandwidth for a threefold speed-up, and run four ranks over such links."""
    n = sum(TENSORS)
    expected = 1.5 * n * 8 / (WHOLE_MS / 3 - WHOLE_MS / 4) / 1e3  # Mbit/s
    ms = padded(4, min(max(answer, 1), 1e4))
    why = f"Over {answer:g} Mbit/s an iteration took {ms:.0f} ms here: {WHOLE_MS / ms:.2f} times."
    return [near("Mbit/s", round(expected, 1), answer, 0.05, why)]


def through_rank_0(answer: Mapping[str, float]) -> list[Finding]:
    """Judge the iterations of an all-reduce through rank 0 by the formula."""
    findings = []
    for name, ranks in (("four", 4), ("eight", 8)):
        expected = WHOLE_MS / ranks + communication_ms("naive", ranks, 20e6 / 8)
        findings.append(
            near(f"milliseconds with {name} ranks", round(expected), answer[name], 0.05)
        )
    why = (
        "Twice (p - 1) n / B through rank 0's links, one after the other: it grows with p, and the "
        "share that Karp and Flatt take for serial grows with it. (Emulated links are each their "
        "own, so a run is somewhat better than this.)"
    )
    last = findings[-1]
    return [*findings[:-1], Finding(last.what, last.ok, last.expected, last.received, why)]


def straggler(answer: Mapping[str, float]) -> list[Finding]:
    """Judge speed-ups with one rank at half speed by formula and record."""
    findings = []
    for name, ranks in (("two", 2), ("eight", 8)):
        expected = WHOLE_MS / (2 * WHOLE_MS / ranks + communication_ms("ring", ranks, 20e6 / 8))
        measured = WHOLE_MS / padded(ranks, 20, faults=(Slow(rank=1, factor=2),))
        why = "All wait for the slow one: T(p) = 2 T(1) / p + C(p)." if ranks == 2 else ""
        what = f"speed-up with {name} ranks"
        findings.append(
            timed(what, round(expected, 2), round(measured, 2), answer[name], 0.05, why)
        )
    return findings


def ask_ahead(answer: float) -> list[Finding]:
    """Judge by the formula; show how long the workers of two runs waited for examples."""
    ahead = min(max(round(answer), 0), 12)
    tried = {n: examples_ms(n) for n in {max(ahead - 1, 0), ahead}}
    waits = ", ".join(f"{ms:.1f} ms with {n} ahead" for n, ms in sorted(tried.items()))
    why = f"A worker waited for examples, per step: {waits}. Enough is L / C = 200 / 50."
    return [equal("minibatches ahead", 4, answer, why)]


def examples_ms(ahead: int, iterations: int = 14) -> float:
    """Return the milliseconds per step for which workers wait for examples, past the first two."""
    slow = Link(latency="200 ms")
    record = finished(
        Experiment(
            strategy="data_servers",
            ranks=3,
            iterations=iterations,
            batch_size=48,
            pad_compute="50 ms",
            network=Network(links={(0, 1): slow, (0, 2): slow}),
            options={"servers": 1, "ahead": ahead},
        )
    )
    stalls = select(record.store, "input").filter(pl.col("iteration") >= 2)["stall_ms"]
    mean: Any = stalls.mean()
    return float(mean)


def left_empty(answer: float) -> list[Finding]:
    """Judge by the probability; show the share of a run's parts that were empty."""
    exp = Experiment(
        strategy="data_parallel",
        task="mlp_layers",
        ranks=4,
        batch_size=4,
        iterations=60,
        options={"examples": "partitioned"},
    )
    rows = finished(exp).events.filter(kind="metric", name="samples")
    measured = 1 - rows.height / (exp.ranks * exp.iterations)
    why = "Each of four samples belongs to another rank with probability 3/4: (3/4) to the fourth."
    return [timed("share of its parts that are empty", 0.316, measured, answer, 0.05, why)]


def break_even(answer: float) -> list[Finding]:
    """Judge the price of a dear node by what both ways cost in rank-seconds."""
    why = "Eight nodes of 0.12 for 45 ms cost as much as one node for 150 ms: 8 · 0.12 · 45 / 150."
    return [near("price per hour", 0.288, answer, 0.02, why)]


def goes_on(rest: Callable[..., Any]) -> list[Finding]:
    """Judge a reader by the samples that all ranks take after it goes on, over many places."""
    findings = []
    for samples, size, done, ranks in ((24, 8, 0, 2), (24, 8, 2, 3), (50, 8, 3, 4), (50, 8, 6, 3)):
        whole = Minibatches(samples, size, seed=done, buffer=12)
        order = [int(one) for one in whole.ids(0)]
        for minibatch in range(1, whole.per_epoch):
            order += whole.ids(minibatch).tolist()
        expected = [
            [
                partition(np.array(order[at : at + size]), rank, ranks).tolist()
                for at in range(done * size, samples, size)
            ]
            for rank in range(ranks)
        ]
        received = [
            [[int(one) for one in ids] for ids in call(rest, order, done, size, rank, ranks)]
            for rank in range(ranks)
        ]
        words = f"{samples} samples in minibatches of {size}, {done} done, {ranks} ranks"
        why = "Skip what is done in whole minibatches, then deal each minibatch out by position."
        findings.append(equal(words, expected, received, why))
    return findings


EXERCISES = (
    Exercise(
        name="10.1",
        title="Threefold with four ranks",
        difficulty=2,
        minutes=10,
        takes=number("Mbit/s"),
        judge=threefold,
        task="""
            The padded study of *A machine for each rank*: 240 ms of computing on one rank, 101 kB
            of gradients. At which bandwidth are four ranks three times as fast as one?
            """,
        hint="$T(4) = T(1)/3$ leaves $80 - 60 = 20$ ms for $C(4) = 1.5\\,n\\,\\beta$.",
        solution="$1.5 \\cdot 101{,}248 \\cdot 8 / 0.020 = 60.7$ Mbit/s.",
    ),
    Exercise(
        name="10.2",
        title="Through rank 0",
        difficulty=2,
        minutes=10,
        takes=numbers("four", "eight"),
        judge=through_rank_0,
        task="""
            `all_reduce="naive"` over 20 Mbit/s: how many milliseconds does an iteration take with
            four ranks and with eight, by formula? Does Karp and Flatt's share stay constant?
            """,
        hint="Rank 0 takes in $p - 1$ gradients and sends $p - 1$ sums, one after the other.",
        solution="""
            $240/p + 2(p-1)\\,n\\,\\beta$: 303 and 597 ms. The share grows: more ranks make
            it slower.
            """,
    ),
    Exercise(
        name="10.3",
        title="One slow machine",
        difficulty=2,
        minutes=10,
        takes=numbers("two", "eight"),
        judge=straggler,
        task="""
            A straggler: rank 1 computes at half speed, over links of 20 Mbit/s. What is the
            speed-up of two ranks and of eight, over one rank that is not slow?
            """,
        hint="$T(p) = 2 \\cdot 240/p + C(p)$, with the ring's $C(p) = 2\\frac{p-1}{p} n \\beta$.",
        solution="""
            $240 / 280.5 = 0.86$ with two, and $240 / 130.9 = 1.83$ with eight: where computing is
            the smaller part, a slow machine costs less.
            """,
    ),
    Exercise(
        name="10.4",
        title="How far ahead?",
        difficulty=1,
        minutes=10,
        takes=number("minibatches"),
        judge=ask_ahead,
        task="""
            An answer of the server takes 200 ms, and a step of the workers 50 ms. How many
            minibatches ahead must a worker ask, so that it never waits for examples?
            """,
        hint="A prefetch of $a$ hides a latency $L$ behind steps of $C$ if $a \\ge L / C$.",
        solution="Four: while it travels, the worker does four steps of 50 ms.",
    ),
    Exercise(
        name="10.5",
        title="A rank with nothing to do",
        difficulty=2,
        minutes=10,
        takes=number("share, 0 to 1"),
        judge=left_empty,
        task="""
            A data set partitioned once over four ranks, and minibatches of four samples, drawn from
            all of it. In which share of the minibatches does a given rank have no sample at all?
            """,
        hint="Each sample of a minibatch belongs to a given rank with probability 1/4.",
        solution="""
            $(3/4)^4 = 0.316$: in nearly a third of its steps a rank computes nothing, and waits for
            the others.
            """,
    ),
    Exercise(
        name="10.6",
        title="Cheap nodes or one dear node",
        difficulty=1,
        minutes=5,
        takes=number("price per hour"),
        judge=break_even,
        task="""
            Eight cheap nodes take 45 ms per iteration: 30 ms of computing, and 15 ms to average. A
            node costs 0.12 per hour. One dear node takes 150 ms per iteration. At which price per
            hour does a training on the dear node cost as much as on the cheap ones?
            """,
        hint="You pay for all eight nodes all the time, also while they communicate.",
        solution="""
            $8 \\cdot 0.12 \\cdot 45 / 150 = 0.288$ per hour, although it is only
            $150/45 = 3.3$ times slower. Below that price the dear node is cheaper, and later done.
            """,
    ),
    Exercise(
        name="10.7",
        title="Go on with the next sample",
        difficulty=2,
        minutes=15,
        takes=function("rest(order, done, batch_size, rank, ranks)"),
        judge=goes_on,
        task="""
            A reader of files was killed. `order` has all ids of the epoch in the order in which
            they are taken, and `done` minibatches of `batch_size` were finished. Return what `rank`
            of `ranks` still has to take: a list of ids for each minibatch that is left. Position 0
            of a minibatch is rank 0's, position 1 is rank 1's, and so on; there may be fewer ranks
            now than before.
            """,
        hint="Cut the order into minibatches first. The last one may be smaller.",
        solution="""
            ```python
            def rest(order, done, batch_size, rank, ranks):
                starts = range(done * batch_size, len(order), batch_size)
                return [order[at : at + batch_size][rank::ranks] for at in starts]
            ```
            """,
    ),
)
