"""``wb.crossover``: from which size on is which algorithm faster? Measured, and predicted.

    crossing = wb.crossover("ring", "one_shot", ranks=4)
    crossing.wait()         or: await crossing
    crossing.table          a row a size of each algorithm
    crossing.figure()       time against size, both logarithmic

Predicted is by walking through each algorithm's file (walk.py, clock.py) with the costs that "auto"
goes by; measured are calls on real ranks, over links that are paced as ``network`` says.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.choosing.ask import costs_over, size_of
from workbench.choosing.choose import algorithms, candidates, refuses
from workbench.choosing.costs import Costs, sizes_between
from workbench.choosing.crew import Crew, calls_of
from workbench.choosing.lines import SCHEMA, fastest, miss
from workbench.choosing.predict import predict
from workbench.collectives import refusal, users_own
from workbench.errors import RunTimeout, SpecError
from workbench.ongoing import Ongoing
from workbench.source import Source, capture, listed, nearest
from workbench.spec import Network

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


class Crossing(Ongoing):
    """What ``crossover`` gives: live while it measures. Every property tells of what is known."""

    def __init__(
        self, operation: str, subjects: Sequence[Subject], ranks: int, sizes: Sequence[int],
        network: Network | None, measure: bool,
    ) -> None:  # fmt: skip
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
            threading.Thread(target=self._work, name="workbench crossover", daemon=True).start()
        else:
            self.ended.set()

    # ---- measuring

    def _work(self) -> None:
        try:
            with Crew(self.ranks) as crew:
                crew.pace(self.costs.links)
                for nbytes in self.sizes:
                    for one in self.subjects:
                        if self._stopping:
                            return
                        self._measure(crew, one, nbytes)
        except Exception as error:  # whoever waits hears of it
            self.error = error
        finally:
            self.ended.set()

    def _measure(self, crew: Crew, one: Subject, nbytes: int) -> None:
        expected = self._predicted[one.name, nbytes]
        expected = 0.0 if math.isnan(expected) else expected  # nobody knows
        if expected > TOO_LONG:
            return
        calls = calls_of(nbytes)
        if self.costs.links.paced:  # one by one: each waits for its last slot anyway
            calls = 1
        rounds = max(2, min(ROUNDS, int(A_CASE / (calls * expected)) if expected > 0 else ROUNDS))
        self._measured[one.name, nbytes] = crew.seconds(
            self.operation, one.name, nbytes, calls=calls, rounds=rounds, source=one.source
        )

    def stop(self) -> None:
        """Measure nothing more."""
        self._stopping = True

    def wait(self, timeout: float | None = None) -> Crossing:
        """Block until all is measured; gives itself. ``timeout`` in seconds: RunTimeout, and it
        goes on. Ctrl-C stops it. Raises what measuring failed with.
        """
        with self._waiting(patience=0.0):
            if not self.ended.wait(timeout):
                raise RunTimeout(f"not measured after {timeout} s ({self.state}); it goes on")
        if self.error is not None:
            raise self.error
        return self

    # ---- what was found

    @property
    def table(self) -> pl.DataFrame:
        """A row a size of each algorithm: predicted and measured are seconds a call."""
        measured = dict(self._measured)
        rows = [
            (one.name, self.ranks, nbytes, self._predicted[one.name, nbytes],
             measured.get((one.name, nbytes)))
            for one in self.subjects
            for nbytes in self.sizes
        ]  # fmt: skip
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    def fastest(self, kind: str = "measured") -> list[tuple[str, int]]:
        """Which is fastest from the smallest size on: (algorithm, bytes up to which, 0: no end).
        ``kind``: measured or predicted.
        """
        return fastest(self.table, kind)

    def miss(self, least: int = 0) -> float:
        """Root mean square of predicted / measured - 1, over sizes of ``least`` bytes and more."""
        return miss(self.table, least)

    @property
    def state(self) -> str:
        """How it stands, in a line."""
        most = len(self.subjects) * len(self.sizes)
        if self.error is not None:
            return f"failed: {self.error}"
        if not self.done:
            return f"{len(self._measured)} of {most} points measured"
        return f"{len(self._measured)} points measured" if self._measured else "predicted only"

    @property
    def words(self) -> list[str]:
        """What it says, in sentences."""
        from workbench.choosing.told import sentences

        return sentences(self)

    def figure(self, theme: str = "light") -> go.Figure:
        """Time against size: dots measured, lines predicted; both axes logarithmic."""
        from workbench.views.crossed import figure

        return figure(self.table, self.operation, theme)

    def __str__(self) -> str:
        return "\n".join([*self.words, self.state])

    def __repr__(self) -> str:
        return f"Crossing({self.operation} on {self.ranks} ranks, {self.state})"

    def _repr_html_(self) -> str:
        from workbench.views.crossed_display import html

        return html(self)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.views.crossed_display import show

        return show


def _predicted(operation: str, one: Subject, n: int, nbytes: int, costs: Costs) -> float:
    """NaN of a function that cannot be walked through: one that waits for whoever comes first."""
    try:
        return predict(operation, one.function or one.name, n, nbytes, costs)
    except Exception:
        if one.function is None:
            raise
        return math.nan


# ---- asking for it


def crossover(
    *given: str | Callable[..., Any], operation: str = "all_reduce", ranks: int = 4,
    sizes: tuple[int | str, int | str] = ("1 KiB", "16 MiB"), network: Network | None = None,
    measure: bool = True,
) -> Crossing:  # fmt: skip
    """Time of algorithms against size, measured on ``ranks`` real ranks, and predicted.

    ``given``: names, or functions ``f(comm, x)`` of your own; left out: all of the operation.
    ``sizes``: from, to, in bytes or such as "1 KiB". ``network``: emulated links, as an Experiment
    has them. ``measure=False``: predicted only. Raises SpecError.
    """
    if not isinstance(ranks, int) or ranks < 2:
        raise SpecError(f"ranks = {ranks!r}: 2 processes or more, one sends nothing")
    if operation == "barrier":
        raise SpecError("operation = 'barrier': it moves no bytes, so no size is to be varied")
    least, most = (size_of(one) for one in sizes)
    if not 4 <= least < most:
        raise SpecError(f"sizes = {sizes!r}: from 4 bytes or more to more than that")
    known = algorithms(operation)
    subjects = [_subject(operation, one, ranks) for one in given or candidates(operation, ranks)]
    if len({one.name for one in subjects}) < len(subjects) or not known:
        raise SpecError(f"{listed([one.name for one in subjects])}: each once")
    steps = max(1, round(math.log2(most / least) / 2))
    return Crossing(
        operation, subjects, ranks, sizes_between(least, most, (most / least) ** (1 / steps)),
        network, measure,
    )  # fmt: skip


def _subject(operation: str, given: str | Callable[..., Any], ranks: int) -> Subject:
    if callable(given):
        if operation != "all_reduce":
            raise SpecError(f"{operation}: functions of your own are all-reduces, f(comm, x)")
        if len(inspect.signature(given).parameters) < 2:
            raise SpecError(f"{given.__name__}: an all-reduce takes (comm, x)")
        if reason := refusal(getattr(given, "takes", None), ranks):
            raise SpecError(f"{given.__name__} does not run on {ranks} ranks: it takes {reason}")
        return Subject(given.__name__, capture(given), users_own(given))
    names = algorithms(operation)
    if given not in names:
        raise SpecError(
            f"{operation} has no algorithm {given!r}{nearest(str(given), names)}. There is: "
            f"{listed(names)}"
        )
    if reason := refuses(operation, given, ranks):
        raise SpecError(f"{operation}/{given} does not run on {ranks} ranks: it takes {reason}")
    return Subject(given)
