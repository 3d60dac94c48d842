"""What a run was and did, in numbers with names; what comparisons of runs are made of.

so_far(run)      of a live run: what it takes no reading of events to say
of(run, curves)  of one that is over
progress(run)    its loss against minibatches, updates, seconds and bytes
MEASURES         what each number is called, with its unit, and how it is written
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from workbench.source import Source
from workbench.spec import Experiment
from workbench.store import Store
from workbench.units import print_size
from workbench.views import served, staged
from workbench.views.curves import Curves

NOT_TRAINING = ("metrics", "control")  # groups whose bytes are not training's
HELD = ("bytes", "in flight")  # what is told of activations
LAST = 10  # the part of a curve, at its end, whose mean is where the run has come to


def describe(exp: Experiment) -> str:
    """A run's name where it was given none: "data_parallel, ring, 4 ranks"."""
    parts = [name_of(exp.strategy), way(exp), f"{exp.ranks} rank{'s' * (exp.ranks > 1)}"]
    return ", ".join(part for part in parts if part)


def name_of(code: str | Source) -> str:
    return code.name if isinstance(code, Source) else code.rpartition(":")[2]


def way_kind(exp: Experiment) -> str:
    """What ``way`` names."""
    kinds = {staged.STRATEGY: "schedule", served.STRATEGY: "consistency"}
    return kinds.get(name_of(exp.strategy), "all-reduce")


def way(exp: Experiment) -> str:
    """How its ranks come together: an algorithm, another backend, a server's policy, or a
    pipeline's schedule.
    """
    if exp.ranks == 1:
        return ""
    if exp.strategy == staged.STRATEGY:
        schedule = exp.options.get("schedule", "1f1b")
        named = isinstance(schedule, Source) or len(str(schedule).split()) == 1
        return name_of(schedule) if named else "grid"
    if exp.strategy == served.STRATEGY:
        return name_of(exp.options.get("consistency", "bsp"))
    return name_of(exp.all_reduce) if exp.backend == "workbench" else exp.backend


def _asked(exp: Experiment) -> dict[str, Any]:
    return {
        "strategy": name_of(exp.strategy), "algorithm": way(exp), "ranks": exp.ranks,
        "iterations_asked": exp.iterations,
    }  # fmt: skip


def so_far(run: Any) -> dict[str, Any]:
    """Of a live run; what is not known yet is None."""
    loss = run.loss
    state, loss = ("running", loss) if math.isfinite(loss) else ("starting", None)
    told = {"state": state, "iterations": run.iteration, "loss": loss}
    return nothing() | _asked(run.experiment) | told


def nothing() -> dict[str, Any]:
    """All names, and nothing known of any."""
    return dict.fromkeys(["error", "iterations_asked", *MEASURES])


def of(run: Any, curves: Curves) -> dict[str, Any]:
    """Of a run that is over; None where it is not known. ``curves``: its own, up to date.

    state, error, strategy, algorithm, ranks, iterations (done), iterations_asked, loss, and all
    of MEASURES: step_ms, exposed_ms and exposed_share are of a step, means over ranks, the first
    iteration left out; bytes are payload.
    """
    result, losses, speed = run.result, curves.select("loss"), curves.select("throughput")
    steps = curves.select("communication")
    done = len(result.losses) or losses.height
    seconds = result.wall_seconds if result.wall_seconds > 0 else _last(speed, "seconds")
    settled = steps.tail(-1) if steps.height > 1 else steps
    step, exposed = (float(settled[part].to_numpy().sum()) for part in ("step_ms", "exposed_ms"))
    samples = float((speed["samples_per_s"] * speed["took_s"]).to_numpy().sum())
    end = (
        "failed" if not result.ok else "stopped" if done < run.experiment.iterations else "finished"
    )
    moved = traffic(run.store)
    found: dict[str, Any] = {
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
        "bytes_busiest": (moved["sent"] + moved["received"]).max(),
        "bytes_all": moved["sent"].sum() or None,
        "bytes_between": to_other_hosts(run.store, run.experiment.network.levels),
        "step_ms": step / settled.height if settled.height else None,
        "exposed_ms": exposed / settled.height if settled.height else None,
        "exposed_share": exposed / step if step else None,
        "stall_ms": _stall(curves),
        "hidden_share": _hidden(curves.select("overlap")),
    }  # fmt: skip
    return nothing() | _asked(run.experiment) | found | _served(curves) | _staged(curves)


def _stall(curves: Curves) -> float | None:
    """How long a rank that trains stands still for examples in a step; the first is left out."""
    told = curves.select("input")["stall_ms"]
    return float(told.tail(max(len(told) - 1, 1)).to_numpy().mean()) if len(told) else None


def _hidden(overlap: pl.DataFrame) -> float | None:
    """Of the communication of DDP's buckets; the first two iterations, before they are as they
    stay, left out.
    """
    settled = overlap.filter(pl.col("iteration") > 1)
    could = settled["hidable_ms"].to_numpy()
    done = np.minimum(settled["hidden_ms"].to_numpy(), could)
    return float(done.sum() / could.sum()) if could.sum() > 0 else None


def _served(curves: Curves) -> dict[str, Any]:
    """What only a run with a parameter server has."""
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


def _staged(curves: Curves) -> dict[str, Any]:
    """What only a pipeline has, and the memory where it was counted. What no computing hides is
    not exposed communication there: it has a bubble.
    """
    most = curves.select("memory")["nbytes"].max()
    told: dict[str, Any] = {"memory": most}
    if not curves.is_staged:
        return told
    idle, held = curves.select("bubble"), curves.select("activations")
    values = {what: held.filter(pl.col("what") == what)["value"].max() for what in HELD}
    if idle.height:
        told["bubble"] = 1 - float(idle["busy"].to_numpy().mean())
        told["bubble_planned"] = idle["planned"][0]
    return told | {
        "activations": values["bytes"], "in_flight": values["in flight"],
        "exposed_ms": None, "exposed_share": None,
    }  # fmt: skip


def ended_at(progress: pl.DataFrame) -> float | None:
    """Where the loss has come to: its mean over the last tenth of the curve."""
    last = progress["loss"].tail(-(-progress.height // LAST))
    return float(last.to_numpy().mean()) if len(last) else None


def traffic(store: Store) -> pl.DataFrame:
    """Columns rank, sent, received: payload bytes of training, from the rows of who moved them."""
    p = pl.col
    rows = store.scan().filter(~p("group").cast(pl.String).is_in(NOT_TRAINING))
    kind = p("kind").cast(pl.String)
    return (
        rows.filter(kind.is_in(["send", "recv"]))
        .group_by("rank")
        .agg(
            sent=p("nbytes").filter(kind == "send").sum(),
            received=p("nbytes").filter(kind == "recv").sum(),
        )
        .sort("rank")
        .collect()
    )


def to_other_hosts(store: Store, levels: Sequence[int]) -> int | None:
    """Payload bytes of training that the busiest rank sent out of its host; None without hosts."""
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
    """Columns iteration, updates, seconds, loss, nbytes: what all ranks had sent by then."""
    p, told = pl.col, curves.select("updates")
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
    return told.join_asof(sent, on="seconds", strategy="backward").with_columns(
        p("nbytes").fill_null(0)
    )


def _last(table: pl.DataFrame, column: str) -> Any:
    return table[column][-1] if table.height else None


def _size(nbytes: float) -> str:
    """Four digits are enough to compare."""
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
    "wall_seconds": ("time, s", "{:.2f}".format),
    "iterations_per_s": ("iterations a second", "{:.1f}".format),
    "samples_per_s": ("samples a second", "{:,.0f}".format),
    "staleness": ("staleness of a gradient, mean", "{:.2f}".format),
    "staleness_max": ("staleness of a gradient, most", "{:.0f}".format),
    "waiting_share": ("a worker waits for a grant", "{:.0%}".format),
    "samples_dropped": ("samples of gradients left out", "{:,.0f}".format),
    "step_ms": ("one step, ms", "{:.2f}".format),
    "exposed_ms": ("of it exposed communication, ms", "{:.2f}".format),
    "exposed_share": ("exposed share of a step", "{:.0%}".format),
    "stall_ms": ("a step's standing still for examples, ms", "{:.2f}".format),
    "hidden_share": ("of what could be hidden behind computing, hidden", "{:.0%}".format),
    "bubble": ("ranks idle, share of an iteration", "{:.1%}".format),
    "bubble_planned": ("of it by the schedule alone", "{:.1%}".format),
    "in_flight": ("microbatches in flight on a stage, most", "{:.0f}".format),
    "activations": ("activations of a rank, most", _size),
    "memory": ("memory of a rank, most", _size),
    "bytes_sent": ("sent by the busiest rank", _size),
    "bytes_busiest": ("in and out of the busiest rank", _size),
    "bytes_all": ("sent by all ranks", _size),
    "bytes_between": ("sent to other hosts by the busiest rank", _size),
}
ALWAYS = ("state", "loss", "accuracy", "wall_seconds")  # said even where nothing is known
WORDS = ("state", "strategy", "algorithm")  # measures that are no numbers


def beside(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> pl.DataFrame:
    """A row a measure that anything is known of, a column each of ``told``: a name -> what its runs
    did. Of several runs the mean, and the least to the most. "–" where nothing is known.
    """
    known = [
        name for name in MEASURES
        if not told or name in ALWAYS
        or any(run[name] not in (None, "") for runs in told.values() for run in runs)
    ]  # fmt: skip
    columns: dict[str, list[str]] = {"": [MEASURES[name][0] for name in known]}
    for column, runs in told.items():
        columns[column] = [_written(name, [run[name] for run in runs]) for name in known]
    return pl.DataFrame(columns)


def _written(name: str, values: Sequence[Any]) -> str:
    found, write = [one for one in values if one not in (None, "")], MEASURES[name][1]
    if not found:
        return "–"
    if name in WORDS:
        each = {one: found.count(one) for one in found}
        return ", ".join(one if len(each) == 1 else f"{n} {one}" for one, n in each.items())
    low, high = write(min(found)), write(max(found))
    return low if low == high else f"{write(sum(found) / len(found))} ({low} – {high})"
