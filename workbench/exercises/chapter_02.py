"""Exercises of chapter 2: parameter servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from workbench.exercises.answers import choice, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import finished, sent_bytes
from workbench.exercises.verdict import Finding, equal, near
from workbench.experiment.faults import Slow
from workbench.experiment.network import Link, Network
from workbench.experiment.spec import Experiment
from workbench.runs.run import Run

SERVED = Experiment(strategy="parameter_server", task="lenet_digits", ranks=4, iterations=3)
LENET = 246_824  # bytes of parameters


def through_the_server(answer: float) -> list[Finding]:
    """Judge by what enters and leaves the server of eight workers."""
    record = finished(SERVED.replace(ranks=9, iterations=2))
    out = sent_bytes(record, group="default")[0]
    into = sum(sent_bytes(record, group="default", peer=0).values())
    size = sum(one.nbytes for one in record.result.parameters.values())
    why = "Each of W workers pulls L and pushes L: 2WL. A rank of a ring never moves more than 4L."
    return [equal("times L, in one iteration", round((out + into) / 2 / size, 3), answer, why)]


def enough_servers(answer: float) -> list[Finding]:
    """Judge by the formula of the chapter, with the computing of 20 ms."""

    def iteration_ms(servers: int) -> float:
        return 20 + 2 * 4 / servers * LENET / (100e6 / 8) * 1e3

    enough = next(s for s in range(1, 99) if iteration_ms(s + 1) > 0.9 * iteration_ms(s))
    why = (
        f"{enough} servers: {iteration_ms(enough):.1f} ms; one more: {iteration_ms(enough + 1):.1f}"
        f" ms. One less than that: {iteration_ms(enough - 1):.1f} ms. Computing stays; the links' "
        "part falls as 1/S, so each further server saves less."
    )
    return [equal("servers", enough, answer, why)]


def shares_of_two(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by how long the pulls from each of two servers took, over links as they are."""
    fast = {(a, b): Link(bandwidth="100 Mbit/s") for w in (2, 3, 4) for a, b in ((0, w), (w, 0))}
    shares = tuple(answer[name] for name in ("first", "second"))
    exp = SERVED.replace(
        ranks=5,
        iterations=4,
        options={"servers": 2, "placement": shares},
        network=Network(bandwidth="50 Mbit/s", links=fast),
    )
    record = finished(exp)
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    sends = record.events.filter(pl.col("iteration") > 0, kind="send", group="default")
    busy = dict(sends.filter(pl.col("rank") < 2).group_by("rank").agg(took).rows())
    why = (
        f"The first server's links carried pulls for {busy[0] / 1e6:.0f} ms, the second's for "
        f"{busy[1] / 1e6:.0f} ms. They end together when share / bandwidth is equal: a server "
        "whose links are twice as fast takes twice as much."
    )
    return [near("time of the first over that of the second", 1, busy[0] / busy[1], 0.15, why)]


def queue_ms(record: Run) -> float:
    """Return how long a push waits at the server, on average, before its update begins."""
    sent = record.events.filter(pl.col("rank") > 0, kind="send", group="default")
    pushes = sent.group_by("iteration", worker="rank").agg(arrived=pl.max("end_ns"))
    applied = record.events.filter(kind="apply").select("iteration", "start_ns", worker="peer")
    waits = pushes.join(applied, on=["worker", "iteration"])
    mean: Any = waits.select((pl.col("start_ns") - pl.col("arrived")).mean()).item()
    return max(0.0, float(mean) / 1e6)


def slow_worker(answer: str) -> list[Finding]:
    """Judge by the queue at the server, with a slow server and with a slow worker."""
    crowd = SERVED.replace(
        ranks=5,
        iterations=20,
        pad_compute="10 ms",
        optimizer="adam",
        options={"consistency": "asp"},
    )
    server = queue_ms(finished(crowd.replace(faults=(Slow(rank=0, factor=20),))))
    worker = queue_ms(finished(crowd.replace(faults=(Slow(rank=1, factor=4),))))
    share = worker / server
    outcome = "nearly gone" if share < 0.5 else "as long" if share < 1.5 else "longer"
    why = (
        f"A push waited {server:.1f} ms at the slow server, and {worker:.1f} ms with a slow worker "
        "in its place. A slow worker pushes less often: it makes the queue shorter, not longer."
    )
    return [equal("the queue is", outcome, answer, why)]


EXERCISES = (
    Exercise(
        name="02.1",
        title="Eight workers",
        difficulty=1,
        minutes=5,
        takes=number("times L"),
        judge=through_the_server,
        task="""
            One server, eight workers (`ranks=9`). How many times do the model's $L$ bytes pass
            through the server in one iteration, in and out together?
            """,
        hint="Each worker pulls everything once, and pushes a gradient of the same size.",
        solution="$2WL = 16 L$. The grader runs the nine ranks and counts.",
    ),
    Exercise(
        name="02.2",
        title="When does one more server stop paying off?",
        difficulty=2,
        minutes=10,
        takes=number("servers"),
        judge=enough_servers,
        task="""
            Four workers, LeNet's 246,824 bytes, cables of 100 Mbit/s, 20 ms of computing, as in
            *How many servers for four workers?* With how many servers does one more save less than
            a tenth of an iteration?
            """,
        hint="""
            $T(S) = 20\\,\\text{ms} + 2W/S \\cdot L/B$. Find the first $S$ with
            $T(S+1) > 0.9\\,T(S)$.
            """,
        solution="""
            $T(S) = 20 + 158/S$ ms: 59.5, 51.6, 46.3 and 42.6 ms with 4, 5, 6 and 7 servers. The
            seventh saves 8 %, so six.
            """,
    ),
    Exercise(
        name="02.3",
        title="A server with better links",
        difficulty=2,
        minutes=10,
        takes=numbers("first", "second"),
        judge=shares_of_two,
        task="""
            Two servers and three workers. The links of the first server carry 100 Mbit/s, those of
            the second 50 Mbit/s. Which shares of the parameters let both be ready at the same time?
            They add up to 1.
            """,
        hint="A server's time is its share over its bandwidth. Make the two equal.",
        solution="Two thirds and one third: `(2 / 3, 1 / 3)`.",
    ),
    Exercise(
        name="02.4",
        title="The slow one is a worker",
        difficulty=1,
        minutes=10,
        takes=choice("longer", "as long", "nearly gone"),
        judge=slow_worker,
        task="""
            In *Contention: who blocked whom?* the server was slow. Make worker 1 slow in its place:
            `wb.Slow(rank=1, factor=4)`. What becomes of the queue at the server?
            """,
        hint="How long does the server work on a push now, and how often does one arrive?",
        solution="""
            Nearly gone. The server takes well under a millisecond for a push, and four workers that
            compute for 10 ms and more rarely meet there.
            """,
    ),
)
