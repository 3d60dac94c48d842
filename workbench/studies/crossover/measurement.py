"""The measurement of a crossing: calls of each algorithm and size, beside their predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from workbench.choosing.costs import Costs
from workbench.choosing.predict import predict
from workbench.common import threads
from workbench.common.arguments import Number, Seconds, Text, Theme, checked
from workbench.common.errors import RunTimeout
from workbench.experiment.spec import Network
from workbench.runs.background_task import Ongoing
from workbench.studies.crossover.ask import costs_over
from workbench.studies.crossover.summary import sentences
from workbench.studies.crossover.table import SCHEMA, fastest, miss
from workbench.studies.crossover.timing_pool import TimingPool, calls_of
from workbench.user_code.source import Source

if TYPE_CHECKING:
    import plotly.graph_objects as go

A_CASE = 0.4  # seconds that the calls of one size may take together, if that is more than one
TOO_LONG = 4.0  # seconds: such a call is predicted, not measured
ROUNDS = 5


@dataclass(frozen=True)
class Subject:
    """An algorithm by name, or a function of the user's own."""

    name: str
    source: Source | None = None
    function: Callable[..., Any] | None = None  # to be walked through


class Measurement(Ongoing):
    """The measurement of algorithms in a thread. Every property gives the present state."""

    def __init__(
        self,
        operation: str,
        subjects: Sequence[Subject],
        ranks: int,
        sizes: Sequence[int],
        network: Network | None,
        measure: bool,
    ) -> None:
        super().__init__()
        self.operation, self.subjects, self.ranks = operation, tuple(subjects), ranks
        self.sizes, self.network = tuple(sizes), network
        self.costs: Costs = costs_over(network, ranks)
        self.error: Exception | None = None
        self._predicted = {
            (one.name, nbytes): _predicted(operation, one, ranks, nbytes, self.costs)
            for one in subjects
            for nbytes in sizes
        }
        self._measured: dict[tuple[str, int], float] = {}
        self._stopping = False
        if measure:
            threads.start(self._work, "workbench crossover", stop=self.stop, launches=True)
        else:
            self.ended.set()

    # ---- measuring

    def _work(self) -> None:
        try:
            with TimingPool(self.ranks) as pool:
                pool.pace(self.costs.links)
                for nbytes in self.sizes:
                    for one in self.subjects:
                        if self._stopping:
                            return
                        self._measure(pool, one, nbytes)
        except Exception as error:  # the caller that waits hears of it
            self.error = error
        finally:
            self.ended.set()

    def _measure(self, pool: TimingPool, one: Subject, nbytes: int) -> None:
        expected = self._predicted[one.name, nbytes]
        expected = 0.0 if math.isnan(expected) else expected  # unknown
        if expected > TOO_LONG:
            return
        calls = calls_of(nbytes)
        if self.costs.links.paced:  # one by one: each waits for its last slot anyway
            calls = 1
        rounds = max(2, min(ROUNDS, int(A_CASE / (calls * expected)) if expected > 0 else ROUNDS))
        self._measured[one.name, nbytes] = pool.seconds(
            self.operation, one.name, nbytes, calls=calls, rounds=rounds, source=one.source
        )

    def stop(self) -> None:
        """Measure nothing more."""
        self._stopping = True

    @checked
    def wait(self, timeout: Seconds | None = None) -> Self:
        """Block until all is measured; return this object. Ctrl-C stops it.

        ``timeout`` in seconds: then RunTimeout, and measuring goes on. Raises the error of a failed
        measurement.
        """
        with self._waiting(patience=0.0):
            if not self.ended.wait(timeout):
                raise RunTimeout(
                    f"timed out: not measured after {timeout} s ({self.state}); it goes on"
                )
        if self.error is not None:
            raise self.error
        return self

    # ---- what was found

    @property
    def table(self) -> pl.DataFrame:
        """A row a size of each algorithm: predicted and measured are seconds a call."""
        measured = dict(self._measured)
        rows = [
            (
                one.name,
                self.ranks,
                nbytes,
                self._predicted[one.name, nbytes],
                measured.get((one.name, nbytes)),
            )
            for one in self.subjects
            for nbytes in self.sizes
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    @checked
    def fastest(self, kind: Text = "measured") -> list[tuple[str, int]]:
        """Return the fastest algorithms by size: (algorithm, bytes up to which; 0: no end).

        ``kind``: measured or predicted.
        """
        return fastest(self.table, kind)

    @checked
    def miss(self, least: Number = 0) -> float:
        """Return the root mean square of predicted / measured - 1.

        ``least``: only sizes of this many bytes and more.
        """
        return miss(self.table, least)

    @property
    def state(self) -> str:
        """The state in a line."""
        most = len(self.subjects) * len(self.sizes)
        if self.error is not None:
            return f"failed: {self.error}"
        if not self.done:
            return f"{len(self._measured)} of {most} points measured"
        return f"{len(self._measured)} points measured" if self._measured else "predicted only"

    @property
    def words(self) -> list[str]:
        """The findings in sentences."""
        return sentences(self.table, self.operation, self.ranks, self.costs)

    @checked
    def figure(self, theme: Theme = "light") -> go.Figure:
        """Plot time against size: dots measured, lines predicted; both axes logarithmic.

        ``theme``: light or dark.
        """
        from workbench.studies.crossover.charts import figure

        return figure(self.table, self.operation, theme)

    def __str__(self) -> str:
        return "\n".join([*self.words, self.state])

    def __repr__(self) -> str:
        return f"Crossing({self.operation} on {self.ranks} ranks, {self.state})"


def _predicted(operation: str, one: Subject, n: int, nbytes: int, costs: Costs) -> float:
    """Return the predicted seconds; NaN for a function that receives from any rank."""
    try:
        return predict(operation, one.function or one.name, n, nbytes, costs)
    except Exception:
        if one.function is None:
            raise
        return math.nan
