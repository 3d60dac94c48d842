"""The result of a run, put together from what its ranks reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.common.errors import WorkbenchError
from workbench.store.recoveries import MODEL, Recovery
from workbench.store.result import Result, digest, losses_since, tensors

if TYPE_CHECKING:
    import polars as pl
    import torch

    from workbench.store.event_store import Store

Reports = dict[int, tuple[dict[str, Any], bytearray]]  # by rank: as rank/main.py sends them


def outcome(
    reports: Reports,
    lost: list[int],
    error: WorkbenchError | None,
    past: Callable[[], list[Mapping[str, Any]]] = list,
) -> Result:
    """Return the result of the ranks that are done. ``lost``: ranks that the run could spare, or
    has recovered from; ``past``: their losses, as reports.
    """
    done = {rank: report for rank, (report, _) in sorted(reports.items()) if "done" in report}
    result = Result(
        digests=_given(done, "digest"),
        bytes_sent={rank: report["bytes_sent"] for rank, report in done.items()},
        lost=lost,
        error=error,
        ok=error is None,
    )
    if error is not None:
        error.result = result
    result.model_losses = _model_losses(done, past)
    result.losses = next(iter(result.model_losses), [])
    if result.losses and (started := _given(done, "started_ns")):
        last = max(done[rank]["ended_ns"] for rank in started)
        result.wall_seconds = (last - min(started.values())) / 1e9
    result.memory = {
        rank: report["memory"] for rank, report in done.items() if report["memory"] is not None
    }
    result.processor_seconds = {rank: one["processor_seconds"] for rank, one in done.items()}
    result.metrics = next(iter(_given(done, "metrics").values()), {})
    for rank in [*_given(done, "parameters")][:1]:
        result.parameters = tensors(*reports[rank])
    if parts := {rank: one for rank, one in done.items() if one["replica"] is not None}:
        result.parameters, result.digests = _whole(parts, reports)
    return result


def _given(done: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, Any]:
    """Return what ranks have reported under this name, of those that have."""
    return {rank: report[name] for rank, report in done.items() if report[name]}


def _model_losses(
    done: Mapping[int, Mapping[str, Any]], past: Callable[[], list[Mapping[str, Any]]]
) -> list[list[float]]:
    """Return the losses of each model, by its number."""
    # Where the run went on from; a fresh rank might not have been told.
    history: Mapping[str, list[float]] = max(
        (one["history"] for one in done.values()), key=len, default={}
    )
    by_model: dict[int, list[Mapping[str, Any]]] = {int(number): [] for number in history}
    for one in (*done.values(), *past()):
        if one["losses"]:
            by_model.setdefault(one["model"], []).append(one)
    return [
        losses_since(history.get(str(number), []), trained)
        for number, trained in sorted(by_model.items())
    ]


def past_losses(
    store: Store, recoveries: Sequence[Recovery], lost_last: Collection[int] = ()
) -> list[Mapping[str, Any]]:
    """Return the losses that lost ranks had reported, from their rows, of the iterations that were
    not done again. ``lost_last``: ranks that no recovery followed, as the run could spare them.
    """
    import polars as pl

    result: list[Mapping[str, Any]] = []
    # What a checkpoint holds each rank has; what was begun again is done again.
    restored = [at for at, one in enumerate(recoveries) if one.state != "memory"]
    counts = recoveries[restored[-1] + 1 if restored else 0 :]
    ends = [(one.generation, rank) for one in counts for rank in map(int, one.lost)]
    ends += [(recoveries[-1].generation + 1 if recoveries else 1, rank) for rank in lost_last]
    if not ends:
        return result
    rows = store.events.filter(pl.col("kind").cast(pl.String) == "metric")
    first = recoveries[restored[-1]].generation if restored else 0
    for end, rank in ends:
        of_process = pl.col("generation").is_between(_since(rank, end, counts, first), end - 1)
        of_rank = rows.filter((pl.col("rank") == rank) & of_process)
        begins = {one.generation: one.go_on.get(rank, one.iteration) for one in recoveries}
        model = int(store.metadata.get(f"{MODEL} {rank}", 0))
        result += [{**one, "model": model} for one in _reported(of_rank, begins)]
    return result


def _since(rank: int, end: int, recoveries: Sequence[Recovery], first: int) -> int:
    """Return the generation in which the process of this rank began that ended in ``end``: the rank
    may have had one before. ``first``: where no recovery had it begin.
    """
    fresh = [one.generation for one in recoveries if rank in one.fresh]
    return max((at for at in fresh if at < end), default=first)


def _reported(rows: pl.DataFrame, begins: Mapping[int, int]) -> list[Mapping[str, Any]]:
    """Return loss and samples of each iteration that has both, as reports."""
    losses, samples = (_by_iteration(rows, name, begins) for name in ("loss", "samples"))
    return [
        {"begun": iteration, "losses": [losses[iteration]], "samples": [samples[iteration]]}
        for iteration in sorted(losses.keys() & samples.keys())
    ]


def _by_iteration(rows: pl.DataFrame, name: str, begins: Mapping[int, int]) -> dict[int, float]:
    """Return a metric by iteration, without iterations that any later generation did again.
    ``begins``: the first iteration of each.
    """
    import polars as pl

    metrics = rows.filter(pl.col("name").cast(pl.String) == name)
    kept = {
        generation: min(
            (first for later, first in begins.items() if later > generation), default=math.inf
        )
        for generation in metrics["generation"].unique()
    }
    return {
        row["iteration"]: row["value"]
        for row in metrics.select("iteration", "generation", "value").iter_rows(named=True)
        if row["iteration"] < kept[row["generation"]]
    }


def _whole(
    parts: Mapping[int, Mapping[str, Any]], reports: Reports
) -> tuple[dict[str, torch.Tensor], dict[int, str]]:
    """Return the parameters of a model that ranks hold in parts; and each replica's digest, under
    its first rank.
    """
    replicas: dict[int, dict[str, torch.Tensor]] = {}
    first: dict[int, int] = {}
    for rank, report in sorted(parts.items()):
        number = report["replica"]
        first.setdefault(number, rank)
        replicas.setdefault(number, {}).update(tensors(*reports[rank]))
    digests = {first[number]: digest(whole) for number, whole in replicas.items()}
    return replicas[min(replicas)], digests
