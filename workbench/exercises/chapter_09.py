"""Exercises of chapters 9 and 9b: DDP's buckets and overlap, and a backward that is not simple."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from workbench.exercises.answers import choice, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import finished, sent_bytes
from workbench.exercises.verdict import Finding, equal, timed
from workbench.experiment.faults import Slow
from workbench.experiment.network import Network
from workbench.experiment.spec import Experiment
from workbench.tasks.mlp_layers import Task
from workbench.theory import cost_model

CAPS = (0.015, 0.03, 0.06, 0.1, 0.2, 0.4)  # MiB
PAD_MS = 100
JOB = Experiment(
    strategy="ddp",
    task="mlp_layers",
    task_options={"layers": 24, "width": 64},
    ranks=4,
    iterations=6,
    batch_size=32,
    pad_compute=f"{PAD_MS} ms",
    network=Network(latency="1 ms", bandwidth="100 Mbit/s"),
    options={"bucket_cap_mb": 0.1},
)


def step_ms(cap_mb: float, share: float = 1.0, backward: float = 2 * PAD_MS / 3) -> float:
    """Return the length of a step by the chapter's formula; ``share``: of each number's bytes,
    ``backward``: the milliseconds of 100 in which buckets fill.
    """
    link = cost_model.Cost(alpha_s=1e-3, beta_s_per_byte=8 / 100e6)
    arrive = [one.nbytes for one in Task(layers=24, width=64).model().parameters()][::-1]
    end, filled = 0.0, 0
    for done, nbytes in enumerate(arrive, 1):
        filled += nbytes
        if filled >= cap_mb * 2**20 or done == len(arrive):
            full = PAD_MS - backward + backward * done / len(arrive)
            end = max(full, end) + cost_model.predict("ring", 4, filled * share, link) * 1e3
            filled = 0
    return end


def best_cap(answer: float) -> list[Finding]:
    """Judge the best bucket for half the bytes by the formula."""
    steps = {cap: step_ms(cap, 0.5) for cap in CAPS}
    best = min(steps, key=lambda cap: steps[cap])
    table = ", ".join(f"{cap:g}: {ms:.1f}" for cap, ms in steps.items())
    why = (
        f"Milliseconds of a step by cap: {table}. A bucket costs 6 ms for its messages as before, "
        "and half as much for its bytes: the best cap moves, but not by much."
    )
    return [equal("bucket_cap_mb", best, answer, why)]


def slow_rank(answer: str) -> list[Finding]:
    """Judge what is exposed on the others when one rank is slow, by the record."""
    even = finished(JOB)
    slow = finished(JOB.replace(faults=(Slow(rank=2, factor=2),)))
    same = sent_bytes(even, iteration=3)[0] == sent_bytes(slow, iteration=3)[0]
    buckets = slow.overlap().buckets.filter(pl.col("iteration") > 1)
    last = buckets.filter(pl.col("bucket") == buckets["bucket"].max())
    full = dict(last.group_by("rank").agg(pl.col("full").median()).rows())
    later = full[2] - full[0]
    why = (
        f"The same bytes are sent. But rank 2's last bucket is full {later:.0f} ms later than rank "
        "0's: what the others wait for is its gradient, not the link."
    )
    return [equal("it is", "waiting" if same else "communication", answer, why)]


def static_buckets(answer: float) -> list[Finding]:
    """Judge by the buckets that the ranks of a static graph tell."""
    exp = JOB.replace(pad_compute=None, options={"bucket_cap_mb": 0.1, "static_graph": True})
    buckets = json.loads(finished(exp).store.metadata["buckets"])
    why = (
        "The buckets are those of the rule, as without it. What is promised saves DDP the search "
        f"for unused parameters; it rebuilds its buckets in iteration {buckets['rebuilt_at'] + 1}, "
        "one later, because the first iteration is for watching the order."
    )
    return [equal("buckets", len(buckets["bytes"]), answer, why)]


def eight_parts(answer: Mapping[str, float]) -> list[Finding]:
    """Judge the bytes of an update in eight parts by the record, its step by the formula."""
    options = {**JOB.options, "accumulate": 8}
    run = finished(JOB.replace(pad_compute=f"{PAD_MS / 8} ms", options=options))
    nbytes = run.calls(iteration=3)["nbytes"].sum()
    formula = step_ms(0.1, backward=2 * PAD_MS / 3 / 8)
    measured = run.overlap().settled["step_ms"].to_list()
    middle = sorted(measured)[len(measured) // 2]
    why = (
        "Buckets fill in the last backward only, and that lasts an eighth of 66.7 ms: it can hide "
        "8.3 ms at most. With all of backward to hide behind, the step would take 124.7 ms."
    )
    return [
        equal("bytes of an update", nbytes, answer["bytes"], "Seven of eight passes send none."),
        timed("ms of a step", round(formula, 1), middle, answer["ms"], 0.02, why),
    ]


def who_is_used(answer: float) -> list[Finding]:
    """Judge the bytes by which ranks ask one another which parameters were used."""
    options = {**JOB.options, "find_unused": True}
    task = {**JOB.task_options, "unused": 4}
    run = finished(JOB.replace(task_options=task, pad_compute=None, options=options))
    calls = run.calls(iteration=3)
    asked = calls.filter(pl.col("name") == "used parameters")["nbytes"].sum()
    why = (
        f"{asked // 4} parameters, a number of four bytes for each. Beside it {calls.height - 1} "
        "buckets travel, those of unused layers too: whole, and full of zeros."
    )
    return [equal("bytes", asked, answer, why)]


def without_samples(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by what ranks report while some of them have no samples left."""
    options = {**JOB.options, "runs_out": (8, 2, 5, 8)}
    run = finished(JOB.replace(pad_compute=None, iterations=8, options=options))
    metrics = run.events.filter(kind="metric")
    samples = metrics.filter(name="samples", rank=0, iteration=6)["value"].item()
    full = metrics.filter(name="bucket full", rank=1).height
    return [
        equal(
            "samples of rank 0",
            int(samples),
            answer["samples"],
            "Ranks 0 and 3 are left, and divide the 32 samples between them.",
        ),
        equal(
            "all-reduces of rank 1",
            full,
            answer["all_reduces"],
            "One in the first iteration, four in each of the other seven: as many as any rank.",
        ),
    ]


EXERCISES = (
    Exercise(
        name="09.1",
        title="Half the bytes",
        difficulty=2,
        minutes=10,
        takes=number("MiB"),
        judge=best_cap,
        task="""
            `compression="fp16"` halves the bytes, not the messages. Which of the caps 0.015, 0.03,
            0.06, 0.1, 0.2 and 0.4 MiB is best then, by the chapter's formula?
            """,
        hint="`ring_ms(nbytes / 2)` in `travel`; the caps still count the gradients' own bytes.",
        solution="0.06 MiB: see the table of the verdict; its neighbours are close.",
    ),
    Exercise(
        name="09.2",
        title="Communication, or waiting?",
        difficulty=1,
        minutes=10,
        takes=choice("communication", "waiting"),
        judge=slow_rank,
        task="""
            Rank 2 computes at half speed: `faults=(wb.Slow(rank=2, factor=2),)`. The others are
            exposed for longer now. Is what is added communication, or waiting?
            """,
        hint="Do more bytes travel, or over slower links?",
        solution="Waiting: the bytes are the same; the last bucket is not full on rank 2.",
    ),
    Exercise(
        name="09.3",
        title="A static graph",
        difficulty=1,
        minutes=5,
        takes=number("buckets"),
        judge=static_buckets,
        task="""
            `options={"bucket_cap_mb": 0.1, "static_graph": True}` promises that every iteration
            uses the same parameters. How many buckets does the model of 24 layers have then?
            """,
        hint='`json.loads(run.store.metadata["buckets"])` has what the ranks tell.',
        solution="Four, as without the promise.",
    ),
    Exercise(
        name="09.4",
        title="Eight parts",
        difficulty=2,
        minutes=10,
        takes=numbers("bytes", "ms"),
        judge=eight_parts,
        task="""
            A minibatch is computed in eight backward passes with `no_sync`, which take 100 ms
            together, as in *Gradient accumulation: several backward passes, one update*. How many
            bytes of gradients does an update all-reduce, and how long is a step by the formula?
            """,
        hint="`once(8)`; and what does the first of eight backward passes send?",
        solution="""
            399,360 bytes, all gradients once, and 166.0 ms: only the last backward hides anything,
            and it lasts 8.3 ms.
            """,
    ),
    Exercise(
        name="09.5",
        title="Who was used?",
        difficulty=1,
        minutes=5,
        takes=number("bytes"),
        judge=who_is_used,
        task="""
            With `find_unused` the ranks ask one another in each iteration which parameters were
            used. Let four layers be unused in place of two: `task_options={"unused": 4, ...}`. How
            many bytes does that all-reduce carry?
            """,
        hint="With two unused layers it had 208 bytes. A layer has a weight and a bias.",
        solution="""
            224: there are $2 \\cdot (24 + 4) = 56$ parameters, and each has a number of four bytes.
            """,
    ),
    Exercise(
        name="09.6",
        title="Two ranks run out",
        difficulty=2,
        minutes=10,
        takes=numbers("samples", "all_reduces"),
        judge=without_samples,
        task="""
            Eight iterations with minibatches of 32 samples, and `"runs_out": (8, 2, 5, 8)`. How
            many samples does rank 0 take in iteration 6 (counted from 0)? And in how many
            all-reduces of gradients does rank 1 take part in all eight iterations, although it has
            samples for two?
            """,
        hint="Who is left in iteration 6? The first iteration has one bucket, each other has four.",
        solution="""
            16 samples: two ranks are left. And $1 + 7 \\cdot 4 = 29$ all-reduces, as every rank:
            `Join` has the others' buckets answered with zeros.
            """,
    ),
)
