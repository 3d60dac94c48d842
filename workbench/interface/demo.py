"""``make demo``: four ranks train LeNet on real digits over the ring; then all of it is checked.

Nothing here is assumed. The same experiment runs sequentially for the loss and the accuracy to
compare with, and over Gloo for the speed; steps are counted in the recorded rows and bytes by the
transport, and set against the formula; what recording cost is what it cost in this very run.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from workbench import native
from workbench.common.output_files import make_ready
from workbench.common.units import counted
from workbench.experiment.spec import Experiment
from workbench.runs.run import Run, start
from workbench.theory import cost_model

if TYPE_CHECKING:
    from workbench.runs.run import Run
    from workbench.store.result import Result

FOLDER = Path("runs")
TABLE, TRACE = FOLDER / "demo.parquet", FOLDER / "demo.json"
RANKS, ITERATIONS = 4, 200
EXPERIMENT: dict[str, Any] = {
    "task": "lenet_digits",
    "iterations": ITERATIONS,
    "batch_size": 64,
    "all_reduce": "ring",
}
GLOO_ITERATIONS = 60  # enough for a median
LOSS_TOLERANCE = 1e-5  # float32, 100 iterations and more: rounding alone stays below


@dataclass(frozen=True)
class Line:
    """One thing that was found. ``holds`` is None where there is nothing to hold, only a number."""

    title: str
    text: str
    holds: bool | None = None


def main(console: Console, html: Path | None = None) -> bool:
    """Run the demo, print what it found, save the trace. Returns whether all holds that must."""
    html = html or FOLDER / "demo.html"
    for path in (html, TABLE, TRACE):  # now, not after the training
        make_ready(path, "the replay" if path == html else "the run")
    live, result = train(console, "over our ring", strategy="data_parallel", ranks=RANKS)
    _, alone = train(console, "sequential, to compare with", strategy="sequential", ranks=1)
    gloo, _ = train(
        console,
        "over Gloo, to compare with",
        strategy="data_parallel",
        ranks=RANKS,
        backend="gloo",
        iterations=GLOO_ITERATIONS,
    )

    events = live.events
    lines = [
        Line("trained", f"LeNet-5 on 8×8 digits resized to 28×28: {result.wall_seconds:.1f} s"),
        *against_sequential(result, alone),
        replicas(result),
        steps(events),
        bytes_sent(result, events),
        overhead(live),
        speed(events, gloo.events),
        mover(),
    ]
    console.print(page(lines))
    console.print(saved(live, html), soft_wrap=True)
    return all(line.holds is not False for line in lines)


def train(console: Console, what: str, **changes: Any) -> tuple[Run, Result]:
    """Run the demo's experiment, so changed, under a progress bar. Raises what the run raised."""
    experiment = Experiment(**(EXPERIMENT | changes))
    ranks = counted(experiment.ranks, "rank")
    console.print(f"LeNet on digits, {experiment.iterations} iterations, {ranks}, {what}")
    live = start(experiment)
    return live, live.wait(progress=True)


def against_sequential(result: Result, alone: Result) -> list[Line]:
    """Compare the loss of every iteration, and the accuracy of both models on the same held-out
    images.
    """
    pairs = list(zip(result.losses, alone.losses, strict=True))
    worst = max(abs(ours - theirs) for ours, theirs in pairs)
    ours, theirs = result.metrics["accuracy"], alone.metrics["accuracy"]
    return [
        Line(
            "loss",
            f"{result.losses[0]:.3f} → {result.losses[-1]:.3f}; over {len(pairs)} iterations never "
            f"further than {worst:.1e} from sequential training (bound {LOSS_TOLERANCE:.0e})",
            worst <= LOSS_TOLERANCE,
        ),
        Line(
            "accuracy",
            f"{ours:.1%} on held-out images, sequential {theirs:.1%}",
            abs(ours - theirs) < 0.005,
        ),
    ]


def replicas(result: Result) -> Line:
    """Compare the ranks' parameters by digest."""
    digests = set(result.digests.values())
    same = len(digests) == 1 and len(result.digests) == RANKS
    how = (
        f"identical to the bit, SHA-256 {next(iter(digests))[:12]}…"
        if same
        else "not all there, or different"
    )
    return Line("replicas", f"{len(result.digests)} of {RANKS}, {how}", same)


def gradients(events: pl.DataFrame) -> pl.DataFrame:
    """Select the rows of the gradients' all-reduces: the default group, within training."""
    row_filter = (
        (pl.col("group") == "default")
        & (pl.col("collective") == "all_reduce")
        & (pl.col("iteration") >= 0)
    )
    return events.filter(row_filter)


def steps(events: pl.DataFrame) -> Line:
    """Compare the recorded steps of each all-reduce on each rank with 2(n-1)."""
    sends = gradients(events).filter(pl.col("kind") == "send")
    result = sends.group_by("rank", "op").agg(pl.col("step").n_unique())["step"].unique()
    counts: list[int] = result.sort().to_list()
    bound = 2 * (RANKS - 1)
    calls = sends["op"].n_unique()
    return Line(
        "steps",
        f"{' or '.join(map(str, counts))} in each of {calls:,} all-reduces on each rank; "
        f"the ring takes 2(n−1) = {bound}",
        counts == [bound],
    )


def bytes_sent(result: Result, events: pl.DataFrame) -> Line:
    """Compare payload bytes, as moved and as recorded, rank by rank, with the formula."""
    sizes = [tensor.numel() * 4 for tensor in result.parameters.values()]
    tensors = [cost_model.bytes_sent("ring", RANKS, size) for size in sizes]
    iteration = [sum(sent) for sent in zip(*tensors, strict=True)]
    expected = {rank: sent * ITERATIONS for rank, sent in enumerate(iteration)}
    whole, share = sum(sizes) / 1e3, max(iteration) / 1e3
    text = (
        f"{sum(result.bytes_sent.values()) / 1e6:,.1f} MB sent; an iteration's gradients are "
        f"{whole:.0f} kB, and a rank sends 2(n−1)/n of that, {share:.0f} kB, the lower bound"
    )
    sends = gradients(events).filter(pl.col("kind") == "send")
    recorded = dict(sends.group_by("rank").agg(pl.col("nbytes").sum()).sort("rank").iter_rows())
    holds = result.bytes_sent == recorded == expected
    if not holds:
        text += f". Expected {expected}, moved {result.bytes_sent}, recorded {recorded}"
    return Line("bytes", text, holds)


def overhead(live: Run) -> Line:
    """Report what recording cost in this run, as measured in it."""
    cost = live.overhead()
    return Line(
        "recording",
        f"{cost.records:,} records at {cost.record_ns:.0f} ns ({cost.samples:,} of them timed "
        "in place), and the collector: "
        f"{cost.share:.2%} of the run's time; {cost.dropped} dropped",
        cost.dropped == 0,
    )


def speed(events: pl.DataFrame, gloo: pl.DataFrame) -> Line:
    """Compare the gradients' all-reduces of an iteration with Gloo's, in the same kind of run."""
    ours, theirs = exchange_seconds(events), exchange_seconds(gloo)
    return Line(
        "speed",
        f"an iteration's gradients are summed in {ours * 1e3:.1f} ms over our ring, in "
        f"{theirs * 1e3:.1f} ms over Gloo: {theirs / ours:.1f} times as fast "
        "(median iteration; `make bench` measures by size)",
    )


def mover() -> Line:
    """Say what moved the messages."""
    why = native.reason()
    words = f"{native.name()}, which moved the messages and wrote the records"
    return Line("mover", words + (f" ({why})" if why else ""))


def exchange_seconds(events: pl.DataFrame) -> float:
    """Return the median time from the last rank's arrival to the last return, summed over an
    iteration's calls.
    """
    calls = gradients(events).filter(pl.col("kind") == "collective").group_by("iteration", "op")
    each = calls.agg(ns=pl.col("end_ns").max() - pl.col("start_ns").max())
    iterations: list[int] = each.group_by("iteration").agg(pl.col("ns").sum())["ns"].to_list()
    return statistics.median(iterations) / 1e9


def saved(live: Run, html: Path) -> str:
    """Write the trace in its three forms; say where, and how each is opened."""
    live.store.save(TABLE)
    live.store.to_perfetto(TRACE)
    live.to_html(html)
    return (
        f"[bold]The run was saved.[/] {escape(str(html))} replays it in any browser. {TRACE} opens "
        f'in https://ui.perfetto.dev. In Python: wb.load("{TABLE}").events\n'
        "Now see it live: make lab"
    )


def page(lines: list[Line]) -> Table:
    """Lay out the findings, one per row, each with its mark."""
    table = Table.grid(padding=(0, 2))
    marks = {True: "[green]✓[/]", False: "[bold red]✗[/]", None: "·"}
    for line in lines:
        table.add_row(marks[line.holds], f"[bold]{line.title}[/]", escape(line.text))
    return table
