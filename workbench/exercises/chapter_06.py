"""Exercises of chapter 6: pipelines and the bubble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from workbench.exercises.answers import choice, number, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.models import Layers
from workbench.exercises.recorded import experiment, finished
from workbench.exercises.verdict import Finding, equal, near, timed
from workbench.experiment.faults import Pads
from workbench.experiment.network import Network
from workbench.experiment.spec import Experiment
from workbench.runs.run import Run
from workbench.training.pipelines import bubble, theory
from workbench.training.pipelines.schedule import Schedule, build


def pipeline(schedule: Any, stages_per_rank: int = 1, **more: Any) -> Experiment:
    """Return the chapter's experiment: four equal stages, eight microbatches, 20 ms an action."""
    options = {
        "schedule": schedule,
        "microbatches": 8,
        "stages_per_rank": stages_per_rank,
        "split": "layers",
    }
    return experiment(
        strategy="pipeline",
        task=Layers,
        ranks=4,
        batch_size=64,
        optimizer="adam",
        lr=0.003,
        options=options,
        **{"iterations": 3, "pad_compute": "20 ms", **more},
    )


def idle(record: Run, schedule: Schedule) -> float:
    """Return the median over iterations, but for the first, of the share that ranks idle."""
    events = record.events.filter(pl.col("iteration") > 0)
    parts = bubble.measure(events, schedule, pads_ns=record.experiment.pads_ns).parts
    each = parts.group_by("iteration").agg(pl.col("busy_ns", "whole_ns").sum())
    median: Any = each.select((1 - pl.col("busy_ns") / pl.col("whole_ns")).median()).item()
    return float(median)


def short_weights(answer: float) -> list[Finding]:
    """Judge the bubble of ZB-H1 with a short W by the plan and by the record."""
    pads = Pads(forward="20 ms", input_gradient="20 ms", weight_gradient="5 ms")
    schedule = build("zb_h1", ranks=4, microbatches=8)
    planned = theory.bubble(schedule, theory.Times(0.020, 0.020, 0.005))
    measured = idle(finished(pipeline("zb_h1", pad_compute=pads)), schedule)
    why = "ZB-H1 fills gaps with weight gradients. Where those are short, they fill little."
    return [timed("bubble", round(planned, 3), round(measured, 3), answer, 0.05, why)]


def half_idle(answer: float) -> list[Finding]:
    """Judge the time of a message at which ranks idle for half of the time."""
    schedule = build("1f1b", ranks=4, microbatches=8)

    def planned(hop_ms: float) -> float:
        return theory.bubble(schedule, theory.Times(0.020, 0.020, 0.020, hop=hop_ms / 1e3))

    low, high = 0.0, 100.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if planned(middle) < 0.5 else (low, middle)
    record = finished(pipeline("1f1b", network=Network(latency=f"{round(high, 2)} ms")))
    why = (
        f"At {high:.2f} ms this run's ranks idled for {idle(record, schedule):.2f} of the time. "
        "The busy part is 480 ms; 16 hops lie on the longest chain, beyond the 660 ms without any."
    )
    return [near("milliseconds for a message", round(high, 2), answer, 0.05, why)]


def slow_first(answer: str) -> list[Finding]:
    """Judge whether a slow rank 0 makes a larger bubble than a slow rank 2."""
    schedule = build("1f1b", ranks=4, microbatches=8)

    def planned(slow: int) -> float:
        each = [0.030 if stage == slow else 0.020 for stage in range(4)]
        return theory.bubble(schedule, theory.Times(each, each, each))

    first, third = planned(0), planned(2)
    outcome = "larger" if first > third + 0.005 else "smaller" if first < third - 0.005 else "same"
    why = (
        f"{first:.3f} with rank 0 slow, {third:.3f} with rank 2. While the pipeline fills and "
        "drains, the first rank has something to do at both ends; a slow rank in the middle makes "
        "the others wait at both."
    )
    return [equal("bubble", outcome, answer, why)]


def zero_bubble(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by the plan of interleaved zero bubble, and by the most in flight of a real run."""
    schedule = build("interleaved_zero_bubble", ranks=4, microbatches=8, stages_per_rank=2)
    exp = pipeline("interleaved_zero_bubble", 2, pad_compute="10 ms", iterations=2)
    record = finished(exp)
    held = in_flight(record, 0)
    why = "Of thin stages: half as many layers as those of ZB-H1, which holds 4 on rank 0."
    return [
        near("bubble of the plan", round(theory.bubble(schedule), 4), answer["bubble"], 0.05),
        equal("microbatches in flight on rank 0", held, answer["held"], why),
    ]


def in_flight(record: Run, rank: int) -> int:
    """Return the most microbatches in flight on a rank, over its stages, from its actions."""
    rows = record.events.filter(pl.col("microbatch") >= 0, rank=rank).sort("start_ns")
    begun, done = rows["kind"] == "forward", rows["kind"] == "weight_grad"
    done |= (rows["kind"] == "backward") & (rows["name"].cast(pl.String) != "input")
    most: Any = (begun.cast(int) - done.cast(int)).cum_sum().max()
    return int(most)


def pipedream(ranks: int, microbatches: int) -> Run:
    """Run PipeDream with so many ranks and microbatches per update, and return its record."""
    exp = pipeline("pipedream", pad_compute=None, iterations=16 // microbatches)
    options = {**exp.options, "microbatches": microbatches}
    return finished(exp.replace(ranks=ranks, options=options))


def two_ranks_behind(answer: float) -> list[Finding]:
    """Judge by the versions that the first stage's forwards used, past the first iterations."""
    rows = pipedream(2, 1).events.filter(pl.col("iteration") >= 4, kind="forward", stage=0)
    behind = (rows["iteration"] - rows["version"]).unique().to_list()
    why = (
        "Stage d of K is K - d forwards ahead of its backwards. The forward of minibatch n sees "
        f"n - (K - d) + 1 updates; recorded from the fifth minibatch on: {behind} behind."
    )
    return [equal("updates behind", max(behind), answer, why)]


def versions_kept(answer: float) -> list[Finding]:
    """Judge by the versions that forwards used whose backwards were still to come."""
    rows = pipedream(4, 2).events.filter(pl.col("microbatch") >= 0, rank=0).sort("start_ns")
    rows = rows.filter(pl.col("kind").cast(pl.String).is_in(["forward", "backward"]))
    flying: dict[tuple[int, int], int] = {}
    most = 0
    for kind, *which, version in rows.select("kind", "iteration", "microbatch", "version").rows():
        key = (which[0], which[1])
        if kind == "forward":
            flying[key] = version
            most = max(most, len({*flying.values()}))
        else:
            flying.pop(key)
    why = (
        "Four microbatches are in flight on rank 0. With eight per update they meet one border "
        "between two updates at most; with two per update they reach over two."
    )
    return [equal("versions", most, answer, why)]


EXERCISES = (
    Exercise(
        name="06.1",
        title="Short weight gradients",
        difficulty=2,
        minutes=10,
        takes=number("share, 0 to 1"),
        judge=short_weights,
        task="""
            `zb_h1` with four ranks, eight microbatches and
            `wb.Pads(forward="20 ms", input_gradient="20 ms", weight_gradient="5 ms")`. How large is
            the bubble?
            """,
        hint="The table of the chapter has the formula: idle time $(K-1)(F + I - W)$ for ZB-H1.",
        solution="""
            $(K-1)(F+I-W) = 3 \\cdot 35 = 105$ ms beside $M(F+I+W) = 360$ ms of work:
            $105 / 465 = 0.226$. With $W = 20$ ms it was 0.111.
            """,
    ),
    Exercise(
        name="06.2",
        title="How long may a message take?",
        difficulty=2,
        minutes=10,
        takes=number("milliseconds"),
        judge=half_idle,
        task="""
            1F1B, four ranks, eight microbatches, 20 ms for each of F, I and W. How long may every
            message take before the ranks idle for half of the time?
            """,
        hint="""
            `theory.makespan_s(made, theory.Times(0.02, 0.02, 0.02, hop=...))` is the iteration;
            each rank is busy for 480 ms of it.
            """,
        solution="18.75 ms: the iteration lasts $660 + 16 h$ ms, and $480 / 960$ is one half.",
    ),
    Exercise(
        name="06.3",
        title="The first rank is the slow one",
        difficulty=2,
        minutes=10,
        takes=choice("larger", "smaller", "same"),
        judge=slow_first,
        task="""
            In *Two misfortunes* rank 2 computed half as long again. Let it be rank 0: is the bubble
            larger, smaller, or the same?
            """,
        hint="Give `theory.Times` a list for each of F, I and W: one number per stage.",
        solution="Smaller: 0.333 against 0.379.",
    ),
    Exercise(
        name="06.4",
        title="Interleaved and without a bubble, nearly",
        difficulty=1,
        minutes=5,
        takes=numbers("bubble", "held"),
        judge=zero_bubble,
        task="""
            `schedule="interleaved_zero_bubble"` with `stages_per_rank=2`: how large is its planned
            bubble, and how many microbatches are in flight on rank 0, over both of its stages?
            """,
        hint="`wb.schedule(...)` draws it and knows `rank_peaks`; `theory.bubble` knows the rest.",
        solution="0.059, half of ZB-H1's 0.111, and eight: `made.rank_peaks[0]` says it.",
    ),
    Exercise(
        name="06.5",
        title="PipeDream with two ranks",
        difficulty=2,
        minutes=10,
        takes=number("updates"),
        judge=two_ranks_behind,
        task="""
            PipeDream with two ranks and `microbatches=1`. Once the pipeline is full: how many
            updates is a forward of stage 0 behind what a schedule with a flush would use?
            """,
        hint="By the law of *Whose weights?*, the forward of $n$ sees $n - (K - d) + 1$ updates.",
        solution="""
            One: $K = 2$ and $d = 0$, so it sees $n - 1$ updates, where a flush would let it see
            $n$. With four ranks it was three.
            """,
    ),
    Exercise(
        name="06.6",
        title="How many versions?",
        difficulty=2,
        minutes=10,
        takes=number("versions"),
        judge=versions_kept,
        task="""
            PipeDream with four ranks. With eight microbatches per update the first stage keeps two
            versions of its weights at most. How many with `microbatches=2`?
            """,
        hint="Four microbatches are in flight there. Over how many updates can they reach?",
        solution="""
            Three. Of four microbatches in a row, two can lie in one iteration, and one each in the
            iteration before and the one after; each of the three used a version of its own. With
            one microbatch per update it is four.
            """,
    ),
)
