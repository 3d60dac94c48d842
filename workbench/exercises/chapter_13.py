"""Exercises of chapter 13: why the ring, and when not."""

from __future__ import annotations

from workbench.exercises.answers import number
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import calls_ms, finished
from workbench.exercises.verdict import Finding, equal, timed
from workbench.experiment.network import Link, Network
from workbench.experiment.spec import Experiment
from workbench.theory import cost_model

LENET = 246_824  # bytes
COST = cost_model.Cost(0.5e-3, 8 / 200e6)
JOB = Experiment(strategy="ddp", ranks=4, iterations=4, threads=1, all_reduce="ring")


def small_tensor(answer: float) -> list[Finding]:
    """Judge from how many ranks on the tree beats the ring by the formulas."""

    def ms(way: str, ranks: int) -> float:
        return cost_model.predict(way, ranks, 16 * 1024, COST) * 1e3

    first = next(n for n in range(2, 65) if ms("tree", n) < ms("ring", n))
    why = (
        f"{first} ranks: tree {ms('tree', first):.1f} ms, ring {ms('ring', first):.1f} ms. The "
        "ring's latencies grow with p, the tree's with lg p; its bytes are the same in each round."
    )
    return [equal("ranks", first, answer, why)]


def one_narrow_link(answer: float) -> list[Finding]:
    """Judge how much slower the ring is with one link ten times as narrow."""
    wide = Network(latency="0.5 ms", bandwidth="200 Mbit/s")
    narrow = wide.model_copy(update={"links": {(0, 1): Link(bandwidth="20 Mbit/s")}})
    times = {}
    for name, network in (("wide", wide), ("narrow", narrow)):
        calls = calls_ms(finished(JOB.replace(network=network)), group="default", nbytes=LENET)
        times[name] = sorted(calls)[len(calls) // 2]
    slow = 6 * (0.5 + LENET / 4 / 2.5e6 * 1e3)
    factor = slow / (cost_model.predict("ring", 4, LENET, COST) * 1e3)
    why = (
        f"Measured: {times['wide']:.0f} ms and {times['narrow']:.0f} ms. Rank 0 sends six chunks "
        "of a quarter over the narrow link, one after the other, and all ranks wait for each."
    )
    measured = times["narrow"] / times["wide"]
    return [timed("times as slow", round(factor, 1), round(measured, 1), answer, 0.15, why)]


EXERCISES = (
    Exercise(
        name="13.1",
        title="From how many ranks on?",
        difficulty=2,
        minutes=10,
        takes=number("ranks"),
        judge=small_tensor,
        task="""
            A tensor of 16 KiB over links of 0.5 ms and 200 Mbit/s. From how many ranks on is the
            tree faster than the ring, by the formulas?
            """,
        hint='`cost_model.predict("tree", n, 16 * 1024, COST)` against `"ring"`, for n = 2, 3, ...',
        solution="The verdict has the first $n$ for which the tree takes less time, and the times.",
    ),
    Exercise(
        name="13.2",
        title="One narrow link",
        difficulty=2,
        minutes=10,
        takes=number("factor"),
        judge=one_narrow_link,
        task="""
            LeNet's gradient (246,824 bytes), four ranks, links of 0.5 ms and 200 Mbit/s. Make the
            link $(0, 1)$ ten times as narrow. How many times as long does the ring take?
            """,
        hint="Every step of the ring has to wait for the chunk on the narrow link.",
        solution="""
            A step took $0.5 + 2.5$ ms and takes $0.5 + 24.7$ ms: 8.5 times as long. The naive
            all-reduce uses that link only once, for all of $L$, so it suffers less.
            """,
    ),
)
