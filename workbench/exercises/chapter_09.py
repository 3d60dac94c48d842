"""Exercises of chapter 9: DDP's buckets and overlap."""

from __future__ import annotations

import json

import polars as pl

from workbench.exercises.answers import choice, number
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import finished, sent_bytes
from workbench.exercises.verdict import Finding, equal
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


def step_ms(cap_mb: float, share: float) -> float:
    """Return the length of a step by the chapter's formula; ``share``: of each number's bytes."""
    link = cost_model.Cost(alpha_s=1e-3, beta_s_per_byte=8 / 100e6)
    arrive = [one.nbytes for one in Task(layers=24, width=64).model().parameters()][::-1]
    end, filled = 0.0, 0
    for done, nbytes in enumerate(arrive, 1):
        filled += nbytes
        if filled >= cap_mb * 2**20 or done == len(arrive):
            full = PAD_MS / 3 + 2 * PAD_MS / 3 * done / len(arrive)
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
)
