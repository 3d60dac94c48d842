"""The findings of a report's runs so far: verdicts with their reasons, tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import polars as pl

from workbench.studies.drift.evidence import EXACT, Evidence, Finding
from workbench.studies.drift.first_update import WHOLE
from workbench.studies.drift.judge import BUG, OTHER, judge
from workbench.studies.drift.measure import apart
from workbench.studies.drift.plan import DTYPES, SEQUENTIAL
from workbench.studies.drift.resuming import moments
from workbench.studies.drift.running import Runs
from workbench.studies.drift.subjects import Subject
from workbench.user_code.source import available

TABLE = pl.Schema(
    {
        "subject": pl.String(),
        "mutant": pl.Boolean(),
        "dtype": pl.String(),
        "iterations": pl.Int64(),
        "ulps_max": pl.Float64(),
        "ulps_median": pl.Float64(),
        "share": pl.Float64(),
        "loss": pl.Float64(),
        "identical": pl.Boolean(),
    }
)


class Findings(Runs):
    """The runs, and the findings on those that are over."""

    @property
    def verdict(self) -> str:
        """The (first) subject's verdict: "rounding", "no difference", "bug: ..." or "failed:
        ...".
        """
        return self.verdicts[self.subjects[0].name]

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdicts by name, with those on mutants."""
        return {name: finding.verdict for name, finding in self.findings.items()}

    @property
    def ok(self) -> bool:
        """Whether the subjects equal sequential training, and every mutant is detected."""
        result = self.findings
        return all(
            (result[one.name].kind == "bug") == one.mutant and result[one.name].kind != "failed"
            for one in self.subjects
        )

    @property
    def findings(self) -> dict[str, Finding]:
        """The findings by name: kind, which bug, reasons, first iteration. Grows with the runs."""
        return {one.name: self._judge(one) for one in self.subjects}

    def _judge(self, one: Subject) -> Finding:
        name = one.name
        keys = [key for key in list(self._distances) if key[0] == name]
        if not keys and name not in self._errors:
            return Finding("waiting")
        shares = [
            {k: self._distances[n, d, k].share for n, d, k in keys if d == dtype}
            for dtype in DTYPES
        ]
        digests = {
            k: len(set(self._results[n, d, k].digests.values())) == 1
            for n, d, k in keys
            if len(self._results[n, d, k].digests) > 1
        }
        exp, start = one.experiment, self._start
        evidence = Evidence(
            ranks=exp.ranks,
            rule=exp.optimizer,
            loss32=self._apart(name, "float32"),
            loss64=self._apart(name, "float64"),
            level=self._level,
            shares32=shares[0],
            shares64=shares[1],
            identical=digests,
            first=self._matches.get(name),
            uneven=self._uneven,
            error=self._errors.get(name),
            resumed=self._resumed.get(name),
            ours=exp.strategy in available("strategies"),
            draws=start is not None and start.draws,
            couples=start is not None and start.couples,
        )
        return judge(replace(evidence, one_rank=self._beside(name, evidence)))

    def _beside(self, name: str, evidence: Evidence) -> Evidence | None:
        """Return the evidence on a loop beside the same loop on one rank, once that was run."""
        if (beside := self._on_one_rank.get(name)) is None:
            return None
        shares = [
            {k: far.share for (d, k), far in beside.distances.items() if d == dtype}
            for dtype in DTYPES
        ]
        losses = [
            apart(self._longest(name, dtype), beside.losses.get(dtype, ())) for dtype in DTYPES
        ]
        return replace(
            evidence,
            loss32=losses[0],
            loss64=losses[1],
            shares32=shares[0],
            shares64=shares[1],
            first=beside.match,
            error=beside.error,
        )

    @property
    def _level(self) -> float:
        losses = self._longest(SEQUENTIAL, "float64")
        return abs(losses[0]) if losses else 1.0

    def _differs(self, name: str) -> bool:
        return self.findings[name].kind == BUG

    def _resumptions(self, name: str) -> Iterable[int]:
        finding, first = self.findings[name], self._matches.get(name)
        begins_right = first is None or (first.what == WHOLE and first.left < EXACT)
        right_so_far = finding.since is None or finding.since == 0 or self._uneven != finding.since
        same = all(self.table.filter(subject=name)["identical"].drop_nulls())
        wrong = finding.kind == BUG or (finding.kind == OTHER and name in self._on_one_rank)
        if not (wrong and begins_right and right_so_far and same):
            return ()
        return moments(finding.since, self.at[-1])

    @property
    def _uneven(self) -> int | None:
        """The first iteration whose minibatch the ranks cannot share evenly, if that is known."""
        return self._start.uneven if self._start else None

    def _longest(self, name: str, dtype: str) -> list[float]:
        """Return the losses of this training's longest run so far."""
        known = [key for key in list(self._results) if key[:2] == (name, dtype)]
        return self._results[max(known, key=lambda key: key[2])].losses if known else []

    def _apart(self, name: str, dtype: str) -> np.ndarray:
        return apart(self._longest(name, dtype), self._longest(SEQUENTIAL, dtype))

    @property
    def table(self) -> pl.DataFrame:
        """The table, a row per run.

        Columns subject, mutant, dtype, iterations, ulps_max, ulps_median (of float32's spacing at
        the sequential value), share (of the distance that training went), loss (the last one's
        distance from the sequential), identical (the replicas' digests; null: there is one).
        """
        rows = []
        for (name, dtype, updates), far in list(self._distances.items()):
            result = self._results[name, dtype, updates]
            should = self._results[SEQUENTIAL, dtype, updates]
            digests = [*result.digests.values()]
            rows.append(
                {
                    "subject": name,
                    "mutant": next(one.mutant for one in self.subjects if one.name == name),
                    "dtype": dtype,
                    "iterations": updates,
                    "ulps_max": far.ulps_max,
                    "ulps_median": far.ulps_median,
                    "share": far.share,
                    "loss": abs(result.losses[-1] - should.losses[-1]),
                    "identical": len({*digests}) == 1 if len(digests) > 1 else None,
                }
            )
        return pl.DataFrame(rows, schema=TABLE)

    @property
    def losses(self) -> pl.DataFrame:
        """A row an iteration of each longest run: subject, dtype, iteration, difference (of the
        loss from the sequential one).
        """
        frames = [
            pl.DataFrame({"difference": self._apart(one.name, dtype)})
            .with_row_index("iteration")
            .select(
                pl.lit(one.name).alias("subject"),
                pl.lit(dtype).alias("dtype"),
                pl.col("iteration").cast(pl.Int64),
                "difference",
            )
            for one in self.subjects
            for dtype in DTYPES
        ]
        return pl.concat(frames)

    @property
    def words(self) -> str:
        """The state in a line."""
        if SEQUENTIAL in self._errors or not self.done:
            return super().words
        return f"{self.subjects[0].name}: {self.verdict}"
