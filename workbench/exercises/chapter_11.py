"""Exercises of chapter 11: fewer words."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.exercises.answers import choice, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.models import Digits
from workbench.exercises.recorded import experiment, finished
from workbench.exercises.verdict import Finding, at_most, equal, near
from workbench.experiment.spec import Experiment
from workbench.training.communication_efficient import theory
from workbench.training.gossip import graphs
from workbench.training.gossip.theory import rate

JOB = experiment(task=Digits, ranks=4, iterations=160, lr=0.1)
STAR = ((0, 1), (0, 2), (0, 3))


def adam_every_time(answer: str) -> list[Finding]:
    """Judge whether local SGD with Adam is data parallel training by the losses of both."""
    adam = JOB.replace(optimizer="adam", lr=0.003, iterations=30, dtype="float64")
    apart = {}
    for name, exp in (("adam", adam), ("sgd", adam.replace(optimizer="sgd", lr=0.1))):
        local = finished(exp.replace(strategy="local_sgd", options={"every": 1})).result.losses
        same = finished(exp).result.losses
        apart[name] = max(abs(a - b) for a, b in zip(local, same, strict=True))
    outcome = "yes" if apart["adam"] < 1e-9 else "no"
    why = (
        f"Losses are apart by up to {apart['adam']:.1e} with Adam, and by {apart['sgd']:.0e} with "
        "SGD. The mean of the steps is the step of the mean only if a step is linear in the "
        "gradient; Adam divides by a root of each rank's own squares."
    )
    return [equal("it is data parallel training", outcome, answer, why)]


def top_k_limit(answer: Mapping[str, float]) -> list[Finding]:
    """Judge the ratio at which top-k begins to cost more by the formula, and at four ranks by the
    record on both sides of it.
    """
    data = max(finished(JOB.replace(iterations=3)).result.bytes_sent.values())
    sides = []
    for ratio in (0.2, 0.3):
        exp = JOB.replace(strategy="top_k", options={"ratio": ratio}, iterations=3)
        sides.append(max(finished(exp).result.bytes_sent.values()) / data)
    why = (
        f"Four ranks sent {sides[0]:.2f} times as much as data parallel with a ratio of 0.2, and "
        f"{sides[1]:.2f} times with 0.3. (p - 1) entries of 8 bytes each, against 2(p - 1)/p of 4."
    )
    return [
        near("four ranks", theory.top_k_pays_below(4), answer["four"], 0.02, why),
        near("eight ranks", theory.top_k_pays_below(8), answer["eight"], 0.02),
    ]


def star_or_ring(answer: float) -> list[Finding]:
    """Judge the second largest eigenvalue of a star by its mixing matrix."""
    star, ring = (rate(graph.weights) for graph in (graphs.graph(STAR, 4, "star"), graphs.ring(4)))
    why = (
        f"A ring of four has {ring:.3f}. The star sends as much in all, and everything through its "
        "middle; a leaf keeps three quarters of what it had, so it agrees more slowly."
    )
    return [near("second largest eigenvalue", round(star, 4), answer, 0.01, why)]


def seldom_enough(answer: float) -> list[Finding]:
    """Judge the least H by what runs with it and with one less send."""
    every = int(answer)
    if every != answer or not 2 <= every <= 160:
        return [Finding("H", False, "a whole number from 2 to 160", f"{answer:g}")]
    of = {h: max(finished(_averaged(h)).result.bytes_sent.values()) for h in (every, every - 1)}
    why = "An average sends 1.5 L = 152,700 bytes from each rank: six of them fit, seven do not."
    less = f"{of[every - 1]:,} bytes"
    return [
        at_most(f"bytes with H = {every}", 1_000_000, of[every], why),
        Finding(f"H = {every - 1} sends more", of[every - 1] > 1e6, "more than 1,000,000", less),
    ]


def _averaged(every: int) -> Experiment:
    return JOB.replace(strategy="local_sgd", options={"every": every})


EXERCISES = (
    Exercise(
        name="11.1",
        title="Local SGD with Adam, every iteration",
        difficulty=1,
        minutes=5,
        takes=choice("yes", "no"),
        judge=adam_every_time,
        task="""
            Local SGD with $H = 1$ is data parallel training, where the optimiser is SGD. Is it so
            with Adam?
            """,
        hint="Is the mean of the ranks' Adam steps the Adam step of the mean gradient?",
        solution="No: Adam's step is not linear in the gradient.",
    ),
    Exercise(
        name="11.2",
        title="When does top-k pay?",
        difficulty=2,
        minutes=10,
        takes=numbers("four", "eight"),
        judge=top_k_limit,
        task="""
            From which `ratio` on does top-k send more than data parallel training, on four ranks
            and on eight?
            """,
        hint="An entry is sent with its index, twice the bytes, and to everybody: $p - 1$ times.",
        solution="$1/p$: 0.25 and 0.125.",
    ),
    Exercise(
        name="11.3",
        title="A star",
        difficulty=2,
        minutes=10,
        takes=number("eigenvalue, 0 to 1"),
        judge=star_or_ring,
        task="""
            Gossip on a star of four, `graph=[[0, 1], [0, 2], [0, 3]]`: how large is $|\\lambda_2|$
            of its mixing matrix? Does it agree faster than a ring of four, which has 0.333?
            """,
        hint="""
            Metropolis weights: an edge has $1 / (1 + \\max(d_i, d_j))$, and the rest stays.
            """,
        solution="0.75: each edge has ¼, a leaf keeps ¾. The ring agrees much faster.",
    ),
    Exercise(
        name="11.4",
        title="A budget of bytes",
        difficulty=1,
        minutes=5,
        takes=number("iterations"),
        judge=seldom_enough,
        task="""
            Local SGD, 160 iterations, four ranks, $L = 101{,}800$ bytes. What is the least $H$ with
            which no rank sends more than 1,000,000 bytes?
            """,
        hint="An average is an all-reduce: $2\\frac{p-1}{p} L$ for each rank. How many fit?",
        solution="Six averages fit: $\\lfloor 160 / H \\rfloor \\le 6$, so $H = 23$.",
    ),
)
