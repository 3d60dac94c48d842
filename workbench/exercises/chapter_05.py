"""Exercises of chapter 5: a model over several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from workbench.exercises.answers import choice, names, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.models import Largest
from workbench.exercises.recorded import experiment, finished
from workbench.exercises.verdict import Finding, at_most, equal, near
from workbench.experiment.spec import Experiment

MB = 1e6
WHOLE = Experiment(
    strategy="pipeline",
    task="char_transformer",
    task_options={"layers": 8, "width": 128, "context": 32},
    ranks=4,
    iterations=2,
    batch_size=32,
    optimizer="adam",
    threads=1,
)


def cut_by_memory(begins: Sequence[str]) -> list[Finding]:
    """Judge a cut by what each rank held."""
    exp = WHOLE.replace(memory_limit="24 MB", options={"split": [*begins]})
    memory = finished(exp).result.memory
    held = ", ".join(f"{nbytes / MB:.2f}" for nbytes in memory.values())
    why = (
        f"Held by ranks 0 to 3: {held} MB. Stage d keeps the activations of 4 - d microbatches, so "
        "equal numbers of layers are not equal bytes: the first stage wants fewer, the last more."
    )
    return [at_most("MB held by the fullest rank", 13.5, max(memory.values()) / MB, why)]


def come_back(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by the gradients that cross two cuts in one iteration."""
    exp = experiment(
        strategy="pipeline",
        task=Largest,
        ranks=3,
        iterations=2,
        batch_size=48,
        dtype="float64",
        options={"microbatches": 4, "split": ["third", "last"]},
    )
    sent = finished(exp).events.filter(kind="send", collective="p2p", group="default", iteration=1)
    back = sent.filter(pl.col("name").cast(pl.String) == "gradient")
    of_rank = dict(back.group_by("rank").agg(pl.col("nbytes").sum()).rows())
    why = (
        "Before `third` three values cross: b, a and the input, which needs no gradient. Before "
        "`last` one: c and the input are already joined there, 44 numbers with one gradient. So "
        "64 and 44 numbers of 8 bytes come back for each of 48 samples."
    )
    return [
        equal("bytes back over the first cut", of_rank[1], answer["first"], why),
        equal("bytes back over the second cut", of_rank[2], answer["second"]),
    ]


def sequence_parallel(answer: str) -> list[Finding]:
    """Judge by what ranks of a tensor parallel model hold, with sequence parallelism."""
    exp = WHOLE.replace(strategy="tensor_parallel", memory_limit="1 GB")
    most = {
        on: max(finished(exp.replace(options={"sequence_parallel": on})).result.memory.values())
        for on in (False, True)
    }
    fits = "yes" if most[True] <= 24 * MB else "no"
    why = (
        f"The fullest rank held {most[False] / MB:.1f} MB without, {most[True] / MB:.1f} MB with "
        "it: the activations between the split layers, which lay whole on every rank, are in four "
        "parts. Each all-reduce became a reduce-scatter and an all-gather, with the same bytes."
    )
    return [equal("fits into 24 MB", fits, answer, why)]


def two_branches(answer: Mapping[str, float]) -> list[Finding]:
    """Judge an iteration with two branches by the longest path, and by what crosses."""
    return [
        near(
            "milliseconds with two ranks",
            140,
            answer["ms"],
            0.02,
            "Stem, the longer branch, head, and the same way back: (10 + 50 + 10) · 2.",
        ),
        near(
            "kilobytes per iteration",
            131.072,
            answer["kB"],
            0.01,
            "One value in, one out, and a gradient of each: 4 · 64 · 128 numbers of 4 bytes.",
        ),
    ]


EXERCISES = (
    Exercise(
        name="05.1",
        title="A cut by memory",
        difficulty=2,
        minutes=10,
        takes=names(
            "three names of layers with which a new stage begins, such as ['blocks.2', ...]",
            '["blocks.2", "blocks.4", "blocks.6"]',
        ),
        judge=cut_by_memory,
        task="""
            The first rank holds most and the last least, because of the microbatches in flight.
            Name the layers with which stages 1, 2 and 3 begin, so that **no rank holds more than
            13.5 MB**. There are blocks `blocks.0` to `blocks.7`; the grader trains for a moment and
            counts.
            """,
        hint="Take a block away from the first stage, and give it to the last.",
        solution='`["blocks.1", "blocks.3", "blocks.5"]`. The last stage is slowest then.',
    ),
    Exercise(
        name="05.2",
        title="What comes back over a cut",
        difficulty=2,
        minutes=10,
        takes=numbers("first", "second"),
        judge=come_back,
        task="""
            `Skips`, cut before `third` and before `last` (`split=["third", "last"]`), in float64,
            minibatches of 48 samples. How many bytes of gradients come back over the first cut and
            over the second, in one iteration?
            """,
        hint="Which values does a layer behind the cut use? Which of them need a gradient?",
        solution="""
            Over the first cut those of `a` and `b`: $2 \\cdot 32 \\cdot 8 \\cdot 48 = 24{,}576$
            bytes. `cat` belongs to the stage before `last`, so over the second cut the gradient of
            the joined 44 numbers comes back: $44 \\cdot 8 \\cdot 48 = 16{,}896$ bytes.
            """,
    ),
    Exercise(
        name="05.3",
        title="Sequence parallelism",
        difficulty=1,
        minutes=5,
        takes=choice("yes", "no"),
        judge=sequence_parallel,
        task="""
            Give the horizontal split `options={"sequence_parallel": True}`. Does the fullest rank
            now stay below 24 MB?
            """,
        hint="What lies on every rank in full between two split layers?",
        solution="""
            No: 30 MB in place of 36. The activations between the split layers are in four parts
            then, those within them and Adam's state are as before.
            """,
    ),
    Exercise(
        name="05.4",
        title="The longest path",
        difficulty=1,
        minutes=5,
        takes=numbers("ms", "kB"),
        judge=two_branches,
        task="""
            A stem takes 10 ms, two branches 30 and 50 ms, a head 10 ms, each forward and as long
            again backward. Messages take no time. How many milliseconds does an iteration take with
            `strategy="branches"`? A minibatch has 64 samples, and every value between the parts has
            128 numbers of float32. How many kilobytes (of 1,000 bytes) do both ranks send together
            in an iteration?
            """,
        hint="Which of the branches decides? Which values, and which gradients, change ranks?",
        solution="""
            $2 \\cdot (10 + 50 + 10) = 140$ ms, where one rank takes 200. Each of the four messages
            has $64 \\cdot 128 \\cdot 4 = 32{,}768$ bytes: 131 kB.
            """,
    ),
)
