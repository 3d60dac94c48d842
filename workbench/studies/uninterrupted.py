"""Is a run with faults the uninterrupted training?

Where a synchronous algorithm recovers, no sample is lost and no gradient is applied twice: the
losses equal those of one process. In float64 that can be told from rounding. Whether an experiment
is one of these is measured, not declared: without faults, its own losses must equal those of one
process. Asynchronous and approximate algorithms do not, and are not judged.

Nor is a recovery of replicas that each rank has of its own: what the lost rank had not yet passed
on is lost with it, and a survivor may have mixed an iteration that another has not. All agree again
only some rounds later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isclose, isfinite

import polars as pl

from workbench.experiment.faults import Corrupt
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import traits_of
from workbench.runs.run import Run, start
from workbench.store.recoveries import recoveries_of
from workbench.store.result import Result
from workbench.studies.drift.subjects import reference

DTYPE = "float64"
SAME = 1e-12  # relative: what the order of sums explains in float64 (LAWS: training)
APART = 1e-10  # a lost or repeated sample is seen at 1e-6 and more
DEADLINE_S = 300.0  # of a run in comparison
MOST_KEPT = 64  # losses of experiments
OF_FAULTS = frozenset(
    "faults recovery min_ranks grace quorum_timeout checkpoint bad_minibatch digest_every network "
    "pad_compute record ranks".split()
)
_KNOWN: dict[str, list[float]] = {}  # an experiment as YAML -> its losses


def differs_from_uninterrupted(exp: Experiment, live: Run, result: Result) -> str:
    """Return where the losses of a run that ended well are not those of the uninterrupted
    training; "" where they are, or where it cannot be said.
    """
    if exp.dtype != DTYPE or exp.scale_batch or exp.resume:
        return ""
    skipped = live.skipped()
    if any(len(one.samples) < exp.batch_size for one in skipped) or any(
        one.updates_lost for one in live.recovery()
    ):
        return ""  # the mean is over other samples, or what is missing is counted
    if live.recovery() and traits_of(exp.strategy).replicas == "own":
        return ""
    if not _is_sequential(_without_faults(exp)):
        return ""
    count = _by_all(live, result)
    left_out = {one.iteration for one in skipped}
    alone = _losses(_sequential(exp, left_out))
    if (at := _first_apart(result.losses[:count], alone, APART, left_out)) is None:
        return ""
    return (
        f"the loss of iteration {at + 1} is {result.losses[at]:.17g}, and {alone[at]:.17g} in one "
        "uninterrupted process"
    )


def _by_all(live: Run, result: Result) -> int:
    """Return how many losses of a run all its ranks have a share in: where it goes on without a
    worker, the losses that follow are means over the samples of the others.
    """
    recoveries = recoveries_of(live.store.metadata)
    since = recoveries[-1] if recoveries else None
    spared = {*result.lost} if since is None else {*result.lost} & {*since.members}
    count = len(result.losses)
    for rank in spared:
        rows = live.events.filter(
            pl.col("rank") == rank,
            pl.col("generation") == (since.generation if since else 0),
            pl.col("name").cast(pl.String) == "loss",
        )
        newest = rows["iteration"].max() if len(rows) else (since.iteration if since else 0) - 1
        count = min(count, int(newest) + 1)  # type: ignore[arg-type]
    return count


def _is_sequential(exp: Experiment) -> bool:
    """Return whether an experiment without faults has the losses of one process."""
    return _first_apart(_losses(exp), _losses(_sequential(exp)), SAME) is None


def _losses(exp: Experiment) -> list[float]:
    """Return the losses of an undisturbed run; the trials of one seed share it."""
    text = exp.to_yaml()
    if text not in _KNOWN:
        if len(_KNOWN) == MOST_KEPT:
            _KNOWN.clear()
        _KNOWN[text] = start(exp).wait(timeout=DEADLINE_S).losses
    return _KNOWN[text]


def _without_faults(exp: Experiment) -> Experiment:
    """Return the experiment at full speed, with all its ranks and nothing to recover from."""
    kept = {name: getattr(exp, name) for name in exp.model_fields_set - OF_FAULTS}
    return Experiment(**{**kept, "ranks": exp.ranks, "record": False})


def _sequential(exp: Experiment, left_out: Iterable[int] = ()) -> Experiment:
    """Return the same training in one process, which leaves some minibatches out."""
    faults = tuple(Corrupt(rank=0, at_iteration=at) for at in sorted(left_out))
    return reference(_without_faults(exp)).replace(faults=faults, bad_minibatch="skip")


def _first_apart(
    losses: Sequence[float], others: Sequence[float], bound: float, ignored: Iterable[int] = ()
) -> int | None:
    """Return the first iteration whose losses differ by more than ``bound``, relative."""
    for at, (one, other) in enumerate(zip(losses, others, strict=False)):
        if at not in ignored and isfinite(one) and not isclose(one, other, rel_tol=bound):
            return at
    return None
