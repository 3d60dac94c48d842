"""Proofs of predictions: an experiment and the changed one, run in alternation.

    run.what_if(links={(1, 2): wb.Link(latency="12 ms")}).prove()

A slower rank is run with wb.Slow, which lengthens its passes at their ends: what is measured is
compared with what is predicted of that. All ranks that compute faster or slower by the same factor
are run with another pad. One faster rank, or one whose passes hold calls that block, cannot be run.
Each proof is kept (calibration.py), and wb.about() says how well predictions have done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from statistics import median

import polars as pl

from workbench.analysis.critical_path.what_if import Changes, Prediction, Retimer
from workbench.common.errors import SpecError
from workbench.common.units import duration_ns, print_duration
from workbench.experiment.network import Link, Network
from workbench.experiment.spec import Experiment, Slow
from workbench.runs.provable import Provable
from workbench.runs.run import start
from workbench.studies.calibration import keep

BASE, CHANGED = "base", "changed"
LITTLE = 0.05  # of computing: calls inside of it that count for nothing
DRIFT = 0.05  # of the base: more, and the machine is not as it was
TRIES = pl.Schema(
    {
        "run": pl.Int64(),
        "experiment": pl.String(),
        "ms": pl.Float64(),
        "disturbed": pl.String(),
    }
)


@dataclass(frozen=True)
class Proof:
    """A prediction beside what was measured. ``table``: a row per run, in their order: run,
    experiment (base or changed), ms, the median of its iterations, and disturbed: why nothing
    could be predicted from this run itself, "" where something could.
    """

    prediction: Prediction
    table: pl.DataFrame

    @property
    def measured_ms(self) -> float:
        """How long an iteration took with the changes: the median of the runs."""
        return self._of(CHANGED)

    @property
    def base_ms(self) -> float:
        """How long it took without them, now."""
        return self._of(BASE)

    @property
    def error(self) -> float | None:
        """The prediction's error as a share of what was measured; None where there is none."""
        ms = self.prediction.ms
        return None if ms is None else ms / self.measured_ms - 1

    @property
    def holds(self) -> bool | None:
        """Whether what was measured lies in the prediction's interval."""
        low, high = self.prediction.low, self.prediction.high
        return None if low is None or high is None else low <= self.measured_ms <= high

    @property
    def words(self) -> str:
        """The proof in a sentence or two."""
        one = self.prediction
        base = f"without the change {self.base_ms:.4g} ms, and {one.base_ms:.4g} ms when predicted"
        if self.error is None:
            return f"Measured {self.measured_ms:.4g} ms; {base}. {one.why_not}"
        inside = "inside" if self.holds else "outside"
        busier = abs(self.base_ms / one.base_ms - 1) > DRIFT
        drift = " The machine is not as it was: predict and prove again." if busier else ""
        return (
            f"Predicted {one.ms:.4g} ms ({one.low:.4g} to {one.high:.4g}), measured "
            f"{self.measured_ms:.4g} ms, {inside} of the interval: an error of {self.error:+.1%}. "
            f"Measured {base}.{drift}{self._disturbance}"
        )

    @property
    def disturbed(self) -> int:
        """How many of the runs were disturbed, by a busy machine for example."""
        return self.table.filter(pl.col("disturbed") != "").height

    @property
    def _disturbance(self) -> str:
        if not self.disturbed:
            return ""
        why = self.table.filter(pl.col("disturbed") != "")["disturbed"][-1]
        verb = "was" if self.disturbed == 1 else "were"
        return f" {self.disturbed} of {self.table.height} runs {verb} disturbed. {why}"

    def _of(self, which: str) -> float:
        return float(median(self.table.filter(experiment=which)["ms"]))

    def __repr__(self) -> str:
        return f"<{self.words}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.words)}</p>{self.table._repr_html_()}"


def prove(prediction: Provable, repeats: int) -> Proof:
    """Run what a prediction is of. Raises SpecError where no experiment is like that."""
    retimer = prediction.retimer
    if retimer is None or "experiment" not in retimer.metadata:
        raise SpecError("prove: the record has no experiment that could be run")
    exp = prediction.experiment or Experiment.from_yaml(retimer.metadata["experiment"])
    changed, slows = with_changes(exp, prediction.changes, retimer)
    expected = retimer.predict(prediction.changes, at_end=True) if slows else prediction
    rows = []
    for number in range(2 * repeats):
        which = CHANGED if number % 2 else BASE
        run = start(changed if number % 2 else exp)
        run.wait(progress=False)
        own = Retimer(run.store.scan(), run.store.metadata)
        rows.append((number, which, own.base_ms, own.why_not))
    proof = Proof(expected, pl.DataFrame(rows, TRIES, orient="row"))
    keep(
        {
            "change": expected.changes.words,
            "ms": expected.ms,
            "low": expected.low,
            "high": expected.high,
            "measured_ms": proof.measured_ms,
            "predicted_from_ms": expected.base_ms,
            "base_ms": proof.base_ms,
            "runs": len(rows),
            "disturbed": proof.disturbed,
        }
    )
    return proof


def with_changes(exp: Experiment, changes: Changes, retimer: Retimer) -> tuple[Experiment, bool]:
    """Return the experiment with these changes, and whether wb.Slow makes them."""
    exp = exp.replace(network=_network(exp.network, changes.links))
    factors = {*changes.compute.values()} - {1.0}
    if not factors:
        return exp, False
    pad = exp.pad_compute
    if len(factors) == 1 and {*changes.compute} >= {*retimer.graph.computes} and _is_time(pad):
        (factor,) = factors
        return exp.replace(pad_compute=print_duration(round(duration_ns(pad) * factor))), False
    if min(factors) < 1:
        raise SpecError("prove: no rank can be made faster than it is; give factors of 1 or more")
    if retimer.graph.enclosed > LITTLE * sum(map(sum, retimer.computing)):
        raise SpecError(
            "prove: passes of this strategy hold calls that block, and wb.Slow would lengthen these"
        )
    slows = [Slow(rank=rank, factor=factor) for rank, factor in changes.compute.items()]
    return exp.replace(faults=[*exp.faults, *slows]), True


def _is_time(pad: object) -> bool:
    return isinstance(pad, str) and duration_ns(pad) > 0


def _network(network: Network, links: Mapping[tuple[int, int], Link]) -> Network:
    """Return the network with other links; what a Link leaves out is as it was."""
    all_links = dict(network.links)
    for way, link in links.items():
        now = network.link(*way)
        latency, bandwidth = link.latency or now.latency, link.bandwidth or now.bandwidth
        all_links[way] = Link(latency=latency, bandwidth=bandwidth, down=now.down)
    given = {name: getattr(network, name) for name in network.model_fields_set}
    return Network(**{**given, "links": all_links})
