"""Exercises of chapter 13: why the ring, and when not."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from workbench.exercises.answers import number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import calls_ms, finished
from workbench.exercises.verdict import Finding, equal, timed
from workbench.experiment.network import Link, Network
from workbench.experiment.spec import Experiment
from workbench.theory import cost_model

LENET = 246_824  # bytes
COST = cost_model.Cost(0.5e-3, 8 / 200e6)
MOST_RANKS = 1024
JOB = Experiment(strategy="ddp", ranks=4, iterations=4, threads=1, all_reduce="ring")


def small_tensor(answer: float) -> list[Finding]:
    """Judge from how many ranks on the tree always beats the ring, by the formulas."""

    def ms(way: str, ranks: int) -> float:
        return cost_model.predict(way, ranks, 16 * 1024, COST) * 1e3

    last = max(n for n in range(2, MOST_RANKS + 1) if ms("tree", n) >= ms("ring", n))
    why = (
        f"{last} ranks: tree {ms('tree', last):.2f} ms, ring {ms('ring', last):.2f} ms; "
        f"{last + 1} ranks: {ms('tree', last + 1):.2f} and {ms('ring', last + 1):.2f} ms. The "
        "ring's latencies grow with p. The tree's time grows by a round at each power of two."
    )
    return [equal("ranks", last + 1, answer, why)]


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


def hosts_of_two(answer: Mapping[str, float]) -> list[Finding]:
    """Judge what leaves a host of two, of four hosts, by the bytes that were recorded."""
    cards = Network(levels=(2, 4), nic="50 Mbit/s")
    exp = Experiment(strategy="fusion", ranks=8, iterations=3, threads=1, network=cards)
    why = {
        "ring": "One rank of a host borders on the next host, and sends all that the ring sends.",
        "hierarchical": "Each of two ranks all-reduces its half among four: 2 · 3/4 · 1/2 of L.",
    }
    findings = []
    for way, reason in why.items():
        sent = finished(exp.replace(all_reduce=way)).bytes(iteration=2, by_peer=True)
        out = sent.filter(pl.col("rank") < 2, pl.col("peer") >= 2)["sent"].sum() / LENET
        findings.append(equal(f"{way}, times L", round(out, 2), round(answer[way], 2), reason))
    return findings


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
            tree faster than the ring by the formulas, with this number of ranks and with *every*
            larger one?
            """,
        hint="""
            Compare `cost_model.predict("tree", n, 16 * 1024, COST)` with `"ring"` for n = 2 to 20.
            The tree's time is a staircase. Does it lose once more after it has won?
            """,
        solution="""
            10. With 7 and 8 ranks the tree takes 6.93 ms and the ring 7.12 and 8.15 ms. But the
            ninth rank costs the tree a fourth round, $\\lceil \\lg 9 \\rceil = 4$: 9.24 ms against
            the ring's 9.17 ms. From 10 ranks on the tree stays ahead, because a round is added only
            at each power of two, and a step of the ring for each rank.
            """,
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
    Exercise(
        name="13.3",
        title="Four hosts of two",
        difficulty=2,
        minutes=10,
        takes=numbers("ring", "hierarchical"),
        judge=hosts_of_two,
        task="""
            Eight ranks, but on four hosts of two: `wb.Network(levels=(2, 4), nic="50 Mbit/s")`. How
            many times the tensor's size leaves a host through its card, in a ring and in a
            hierarchical all-reduce?
            """,
        hint="In the hierarchical one each rank of a host has a half. Among how many hosts?",
        solution="""
            1.75 and 1.5. A ring sends the same out of any host; with only two ranks per host the
            hierarchical all-reduce hardly sends less.
            """,
    ),
)
