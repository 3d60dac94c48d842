"""The measures of a run, numbers with names, from which comparisons of runs are made.

so_far(run)      of a live run: what it takes no reading of events to say
of(run, curves)  of one that is over
progress(run)    its loss against minibatches, updates, seconds and bytes
MEASURES         what each number is called, with its unit, and how it is written
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.actors import mean
from workbench.analysis.arrivals import NOT_TRAINING
from workbench.analysis.curves import Curves
from workbench.analysis.recovery import measure
from workbench.analysis.tables import traffic
from workbench.analysis.time_spent import TimeSpent, rows_of
from workbench.common.units import print_size
from workbench.experiment.options import options_of
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import known_traits
from workbench.store.event_store import Store
from workbench.training.gossip.laws import can_miss, missed
from workbench.user_code.source import Source

HELD = ("bytes", "in flight")  # what is told of activations
LAST = 10  # the part of a curve, at its end, whose mean is where the run has come to


def describe(exp: Experiment) -> str:
    """Return a name for an unnamed run: "data_parallel, ring, 4 ranks"."""
    parts = [name_of(exp.strategy), way(exp), f"{exp.ranks} rank{'s' * (exp.ranks > 1)}"]
    return ", ".join(part for part in parts if part)


def name_of(code: str | Source) -> str:
    return code.name if isinstance(code, Source) else code.rpartition(":")[2]


def way_kind(exp: Experiment) -> str:
    """Return the kind of what ``way`` returns."""
    return next(iter(known_traits(exp.strategy).way), "all-reduce")


def way(exp: Experiment) -> str:
    """Return how ranks combine: an algorithm, another backend, a server's policy, or a schedule."""
    traits = known_traits(exp.strategy)
    if exp.ranks == 1 or traits.plays == "only":
        return ""
    if traits.way:
        options = {name: one.default for name, one in options_of(exp.strategy).items()}
        return ", ".join(_shown((options | dict(exp.options))[name]) for name in traits.way)
    if traits.messages in ("collectives", "neighbors"):
        return ""  # no all-reduce, whose algorithm it would be
    return name_of(exp.all_reduce) if exp.backend == "workbench" else exp.backend


def _shown(value: Any) -> str:
    """Return an option's value as a name; "grid" for a schedule that is written out."""
    named = isinstance(value, Source) or len(str(value).split()) == 1
    return name_of(value) if named else "grid"


def _settings(exp: Experiment) -> dict[str, Any]:
    return {
        "strategy": name_of(exp.strategy),
        "algorithm": way(exp),
        "ranks": exp.ranks,
        "iterations_asked": exp.iterations,
    }


def so_far(run: Any) -> dict[str, Any]:
    """Return the measures of a live run; None where a value is not known yet."""
    loss = run.loss
    state = "starting" if loss is None else "running"
    known = loss if loss is not None and math.isfinite(loss) else None
    facts = {"state": state, "iterations": run.iteration, "loss": known}
    return nothing() | _settings(run.experiment) | facts


def nothing() -> dict[str, Any]:
    """Return all names with None."""
    return dict.fromkeys(["error", "iterations_asked", *MEASURES])


def of(run: Any, curves: Curves) -> dict[str, Any]:
    """Return the measures of a run that is over; None where a value is not known.

    ``curves``: its own, up to date. Keys: state, error, strategy, algorithm, ranks, iterations
    (done),
    iterations_asked, loss, and all of MEASURES. step_ms is of one iteration, the mean over ranks,
    without the first iteration; exposed_ms and wait_ms are the parts of it in which bytes were on
    their way and another rank was waited for, by the shares of ``run.bottleneck()``; bytes are
    payload.
    """
    result, losses, speed = run.result, curves.select("loss"), curves.select("throughput")
    steps = curves.select("communication")
    done = len(result.losses) or losses.height
    seconds = result.wall_seconds if result.wall_seconds > 0 else _last(speed, "seconds")
    settled = steps.tail(-1) if steps.height > 1 else steps
    step = float(settled["step_ms"].to_numpy().mean()) if settled.height else None
    exposed, wait = _exposed(run.store)
    samples = float((speed["samples_per_s"] * speed["took_s"]).to_numpy().sum())
    end = (
        "failed" if not result.ok else "stopped" if done < run.experiment.iterations else "finished"
    )
    moved = traffic(run.store.scan())
    values: dict[str, Any] = {
        "state": end,
        "error": str(result.error) if result.error is not None else None,
        "iterations": done,
        "loss": result.losses[-1] if result.losses else _last(losses, "loss"),
        "loss_end": ended_at(curves.select("updates")),
        "accuracy": result.metrics.get("accuracy"),
        "wall_seconds": seconds,
        "iterations_per_s": done / seconds if seconds and done else None,
        "samples_per_s": samples / seconds if seconds and samples else None,
        "bytes_sent": max(result.bytes_sent.values(), default=None) or moved["sent"].max(),
        "bytes_busiest": moved["through"].max(),
        "bytes_all": moved["sent"].sum() or None,
        "bytes_between": to_other_hosts(run.store, run.experiment.network.levels),
        "step_ms": step,
        "exposed_ms": _part(step, exposed),
        "exposed_share": exposed,
        "wait_ms": _part(step, wait),
        "wait_share": wait,
        "stall_ms": _stall(curves),
        "hidden_share": _hidden(curves.select("overlap")),
    }
    values |= _of_server(curves) | _of_pipeline(curves) | _of_recovery(run) | _of_actors(curves)
    if "peers" in run.store.metadata and can_miss(run.store.scan()):
        values["messages_missed"] = int(missed(run.store.scan())["messages"].sum())
    values["score"] = result.metrics.get("return")
    return nothing() | _settings(run.experiment) | values


def _exposed(store: Store) -> tuple[float | None, float | None]:
    """Return the shares of the ranks' time in which bytes were on their way, and in which another
    rank was waited for; None where they are not known.
    """
    spent = TimeSpent(rows_of(store.scan()), store.metadata)
    total = sum(spent.parts.values())
    if not spent.computes or total <= 0:
        return None, None
    return spent.parts["link"] / total, spent.parts["wait"] / total


def _part(step_ms: float | None, share: float | None) -> float | None:
    return None if step_ms is None or share is None else step_ms * share


def _stall(curves: Curves) -> float | None:
    """Return the mean wait for samples per iteration of a training rank, without the first one."""
    table = curves.select("input")["stall_ms"]
    return float(table.tail(max(len(table) - 1, 1)).to_numpy().mean()) if len(table) else None


def _hidden(overlap: pl.DataFrame) -> float | None:
    """Return the hidden share of the communication of DDP's buckets, without two iterations.

    The first two are left out, because buckets are rebuilt in them.
    """
    settled = overlap.filter(pl.col("iteration") > 1)
    could = settled["hidable_ms"].to_numpy()
    done = np.minimum(settled["hidden_ms"].to_numpy(), could)
    return float(done.sum() / could.sum()) if could.sum() > 0 else None


def _of_server(curves: Curves) -> dict[str, Any]:
    """Return the measures that only a run with a parameter server has."""
    stale = curves.select("staleness")
    if not stale.height:
        return {}
    versions, gradients = stale["staleness"], stale["gradients"]
    time = curves.select("waiting")
    return {
        "updates": curves.updates_made,
        "staleness": float(np.average(versions.to_numpy(), weights=gradients.to_numpy())),
        "staleness_max": int(versions.to_numpy().max()),
        "waiting_share": float((time["blocked_s"] / time["wall_s"]).to_numpy().mean()),
        "samples_dropped": curves.samples_dropped,
    }


def _of_pipeline(curves: Curves) -> dict[str, Any]:
    """Return the measures that only a pipeline has, and its memory where it was counted.

    Its exposed communication and waiting are None: a pipeline has a bubble instead.
    """
    most = curves.select("memory")["nbytes"].max()
    facts: dict[str, Any] = {"memory": most}
    if not curves.is_staged:
        return facts
    idle, held = curves.select("bubble"), curves.select("activations")
    values = {what: held.filter(pl.col("what") == what)["value"].max() for what in HELD}
    if idle.height:
        facts["bubble"] = 1 - float(idle["busy"].to_numpy().mean())
        facts["bubble_planned"] = idle["planned"][0]
    return facts | {
        "activations": values["bytes"],
        "in_flight": values["in flight"],
        **dict.fromkeys(("exposed_ms", "exposed_share", "wait_ms", "wait_share")),
    }


def _of_recovery(run: Any) -> dict[str, Any]:
    """Return the measures that only a run with faults or a recovery policy has: what its losses of
    ranks cost.
    """
    exp = run.experiment
    if exp.recovery == "abort" and not exp.faults:
        return {}
    lost = measure(run.store.scan(), run.store.metadata)
    took = [one.first_ms for one in lost if one.first_ms is not None]
    return {
        "recovery": name_of(exp.recovery),
        "recoveries": len(lost),
        "recovery_ms": median(took) if took else None,
        "iterations_lost": sum(one.iterations_lost for one in lost),
        "samples_repeated": sum(one.samples_repeated for one in lost),
        "goodput": lost.goodput if math.isfinite(lost.goodput) else None,
    }


def _of_actors(curves: Curves) -> dict[str, Any]:
    """Return the measures that only a run with an environment has."""
    played, ages = curves.select("returns"), curves.select("ages")
    if not ages.height:
        return {}
    return {
        "return_end": _last(played, "mean"),
        "frames_per_s": float(ages["frames_per_s"].to_numpy().mean()),
        "sample_age": mean(ages["age"]),
        "policy_lag": mean(ages["lag"]),
    }


def ended_at(progress: pl.DataFrame) -> float | None:
    """Return the final loss: its mean over the last tenth of the curve."""
    last = progress["loss"].tail(-(-progress.height // LAST))
    return float(last.to_numpy().mean()) if len(last) else None


def to_other_hosts(store: Store, levels: Sequence[int]) -> int | None:
    """Return the most payload bytes that a rank sent out of its host; None without hosts."""
    if len(levels) < 2:
        return None
    p, inside = pl.col, levels[0]
    sent = (
        store.scan()
        .filter(p("kind").cast(pl.String) == "send", p("peer") >= 0)
        .filter(~p("group").cast(pl.String).is_in(NOT_TRAINING))
        .filter(p("rank") // inside != p("peer") // inside)
        .group_by("rank")
        .agg(p("nbytes").sum())
        .collect()
    )
    return int(sent["nbytes"].max() or 0)  # type: ignore[arg-type]


def progress(store: Store, curves: Curves) -> pl.DataFrame:
    """Return columns iteration, updates, seconds, loss, nbytes: bytes that all ranks had sent;
    frames, return: of an environment, else null.
    """
    p, table = pl.col, curves.select("updates")
    origin = curves.began_ns
    sent = (
        store.scan()
        .filter(p("kind").cast(pl.String) == "send")
        .filter(~p("group").cast(pl.String).is_in(NOT_TRAINING))
        .select(seconds=(p("end_ns") - origin) * 1e-9, nbytes="nbytes")
        .sort("seconds")
        .with_columns(p("nbytes").cum_sum())
        .collect()
    )
    played = curves.select("returns").select("seconds", "frames", p("mean").alias("return"))
    return (
        table.join_asof(sent, on="seconds", strategy="backward")
        .join_asof(played, on="seconds", strategy="backward")
        .with_columns(p("nbytes").fill_null(0))
    )


def _last(table: pl.DataFrame, column: str) -> Any:
    return table[column][-1] if table.height else None


def _size(nbytes: float) -> str:
    """Return the size, rounded to four digits."""
    return print_size(int(float(f"{nbytes:.4g}")))


Write = Callable[[Any], str]
# name -> (what it is called, with its unit; how a value is written)
MEASURES: Mapping[str, tuple[str, Write]] = {
    "state": ("state", str),
    "strategy": ("strategy", str),
    "algorithm": ("all-reduce, policy or schedule", str),
    "ranks": ("ranks", str),
    "iterations": ("iterations done", "{:,.0f}".format),
    "updates": ("updates of the parameters", "{:,.0f}".format),
    "loss": ("last loss", "{:.4f}".format),
    "loss_end": ("loss, mean of the last tenth", "{:.4f}".format),
    "accuracy": ("accuracy", "{:.1%}".format),
    "score": ("return of the trained network, mean of 20 episodes", "{:.3g}".format),
    "return_end": ("return while training, mean of the last 20 episodes", "{:.3g}".format),
    "frames_per_s": ("frames per second, all actors", "{:,.0f}".format),
    "sample_age": ("age of what is learned from, mean, updates", "{:,.1f}".format),
    "policy_lag": ("updates that a pull of an actor brings, mean", "{:,.1f}".format),
    "wall_seconds": ("time, s", "{:.2f}".format),
    "iterations_per_s": ("iterations a second", "{:.1f}".format),
    "samples_per_s": ("samples a second", "{:,.0f}".format),
    "staleness": ("staleness of a gradient, mean", "{:.2f}".format),
    "staleness_max": ("staleness of a gradient, most", "{:.0f}".format),
    "waiting_share": ("share of time that a worker waits for a grant", "{:.0%}".format),
    "samples_dropped": ("samples of gradients left out", "{:,.0f}".format),
    "messages_missed": ("messages left out, overwritten or too late", "{:,.0f}".format),
    "step_ms": ("one step, ms", "{:.2f}".format),
    "exposed_ms": ("of which bytes are on their way, exposed, ms", "{:.2f}".format),
    "exposed_share": ("exposed communication, share of a step", "{:.0%}".format),
    "wait_ms": ("of which waiting for other ranks, ms", "{:.2f}".format),
    "wait_share": ("waiting for other ranks, share of a step", "{:.0%}".format),
    "stall_ms": ("wait for examples per step, ms", "{:.2f}".format),
    "hidden_share": ("hidden, of what computing could hide", "{:.0%}".format),
    "bubble": ("ranks idle, share of an iteration", "{:.1%}".format),
    "bubble_planned": ("of which by the schedule alone", "{:.1%}".format),
    "in_flight": ("microbatches in flight on a stage, most", "{:.0f}".format),
    "activations": ("activations of a rank, most", _size),
    "memory": ("memory of a rank, most", _size),
    "recovery": ("recovery policy", str),
    "recoveries": ("recoveries", "{:.0f}".format),
    "recovery_ms": ("from the fault to the first iteration, median, ms", "{:.0f}".format),
    "iterations_lost": ("iterations lost", "{:,.0f}".format),
    "samples_repeated": ("samples computed again", "{:,.0f}".format),
    "goodput": ("goodput", "{:.1%}".format),
    "bytes_sent": ("sent by the busiest rank", _size),
    "bytes_busiest": ("in and out of the busiest rank", _size),
    "bytes_all": ("sent by all ranks", _size),
    "bytes_between": ("sent to other hosts by the busiest rank", _size),
}
ALWAYS = ("state", "loss", "accuracy", "wall_seconds")  # said even where nothing is known
WORDS = ("state", "strategy", "algorithm", "recovery")  # measures that are not numbers


def beside(runs_by_value: Mapping[str, Sequence[Mapping[str, Any]]]) -> pl.DataFrame:
    """Return a row per measure, a column per name of ``runs_by_value``.

    The argument maps a name to its runs' measures. Of several runs the table has the mean, and the
    range; "–" where nothing is known.
    """
    known = [
        name
        for name in MEASURES
        if not runs_by_value
        or name in ALWAYS
        or any(run[name] not in (None, "") for runs in runs_by_value.values() for run in runs)
    ]
    columns: dict[str, list[str]] = {"": [MEASURES[name][0] for name in known]}
    for column, runs in runs_by_value.items():
        columns[column] = [_as_text(name, [run[name] for run in runs]) for name in known]
    return pl.DataFrame(columns)


def _as_text(name: str, values: Sequence[Any]) -> str:
    result, write = [one for one in values if one not in (None, "")], MEASURES[name][1]
    if not result:
        return "–"
    if name in WORDS:
        each = {one: result.count(one) for one in result}
        return ", ".join(one if len(each) == 1 else f"{n} {one}" for one, n in each.items())
    low, high = write(min(result)), write(max(result))
    return low if low == high else f"{write(sum(result) / len(result))} ({low} – {high})"
