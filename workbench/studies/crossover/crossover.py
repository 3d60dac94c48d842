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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.choosing.choose import algorithms, candidates, refuses
from workbench.choosing.costs import sizes_between
from workbench.collectives import refusal, users_own
from workbench.common.arguments import (
    Algorithm,
    FromTo,
    Text,
    Walked,
    checked,
)
from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest
from workbench.experiment.spec import Network
from workbench.studies.crossover.ask import size_of
from workbench.studies.crossover.measurement import Measurement, Subject
from workbench.user_code.source import capture

if TYPE_CHECKING:
    pass


class Crossing(Measurement):
    """The measurement of ``crossover``: live while it runs; shows itself in a notebook."""

    def _repr_html_(self) -> str:
        from workbench.studies.crossover.display import html

        return html(self)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.studies.crossover.display import show

        return show


@checked
def crossover(
    *given: Algorithm,
    operation: Text = "all_reduce",
    ranks: Walked = 4,
    sizes: FromTo = ("1 KiB", "16 MiB"),
    network: Network | None = None,
    measure: bool = True,
) -> Crossing:
    """Time algorithms against size, measured on ``ranks`` real ranks, and predicted.

    ``given``: names, or functions ``f(comm, x)`` of your own; left out: all of the operation.
    ``sizes``: from, to, in bytes or such as "1 KiB". ``network``: emulated links, as an Experiment
    has them. ``measure=False``: predicted only. Raises SpecError.

    >>> print(wb.crossover("ring", "tree", ranks=4, measure=False))
    """
    if ranks < 2:
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
        operation,
        subjects,
        ranks,
        sizes_between(least, most, (most / least) ** (1 / steps)),
        network,
        measure,
    )


def _subject(operation: str, algorithm: str | Callable[..., Any], ranks: int) -> Subject:
    if callable(algorithm):
        if operation != "all_reduce":
            raise SpecError(f"{operation}: functions of your own are all-reduces, f(comm, x)")
        if len(inspect.signature(algorithm).parameters) < 2:
            raise SpecError(f"{algorithm.__name__}: an all-reduce takes (comm, x)")
        if reason := refusal(getattr(algorithm, "takes", None), ranks):
            raise SpecError(
                f"{algorithm.__name__} does not run on {ranks} ranks: it takes {reason}"
            )
        return Subject(algorithm.__name__, capture(algorithm), users_own(algorithm))
    names = algorithms(operation)
    if algorithm not in names:
        raise SpecError(
            f"{operation} has no algorithm {algorithm!r}{nearest(str(algorithm), names)}. "
            f"Allowed: {listed(names)}"
        )
    if reason := refuses(operation, algorithm, ranks):
        raise SpecError(f"{operation}/{algorithm} does not run on {ranks} ranks: it takes {reason}")
    return Subject(algorithm)
