"""Exercises of chapter 14: an all-reduce of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.exercises.answers import function
from workbench.exercises.exercise import Exercise
from workbench.exercises.verdict import Finding, at_most, equal
from workbench.studies.checking.check import check


def judged(f: Callable[..., Any], counts: tuple[int, ...], steps: dict[int, int]) -> list[Finding]:
    """Judge an all-reduce by every case of ``wb.check``, its bytes and its steps."""
    report = check("all_reduce", f, ranks=counts, progress=False)
    findings = [
        Finding(
            "right in every case",
            report.ok,
            "sums, no deadlock, nothing unreceived",
            report.headline,
        ),
        equal("the same bits on all ranks", True, report.identical),
    ]
    if not report.ok:
        return findings
    largest = max(counts)
    why = "No all-reduce can do with less than 2(p-1)/p of the tensor on its busiest rank."
    return [
        *findings,
        at_most(
            f"sent by the busiest of {largest}, × the tensor",
            round(report.bound[largest] * 1.01, 3),
            round(report.sent[largest], 3),
            why,
        ),
        *(at_most(f"steps of {n} ranks", steps[n], report.steps[n]) for n in counts),
    ]


EXERCISES = (
    Exercise(
        name="14.1",
        title="As few bytes as possible",
        difficulty=2,
        minutes=30,
        takes=function("mine(comm, x)"),
        judge=lambda f: judged(f, (2, 3, 4, 8), {n: 2 * (n - 1) for n in (2, 3, 4, 8)}),
        task="""
            Write an all-reduce that is right in every case, leaves **the same bits** on all ranks,
            sends no more than **the bound**, $2(p-1)/p$ of the tensor, from any rank, and takes no
            more than **$2(p-1)$ steps**.
            """,
        hint="""
            Cut the tensor with `comm.split(x)`. Let each chunk go round once and be added to, then
            once more and replace. `comm.exchange` sends and receives at once.
            """,
        solution="""
            The ring. In step $k$ rank $r$ gives chunk $r - k$ to the right and adds chunk $r - k -
            1$ from the left; in the second round it gives chunk $r + 1 - k$ and takes $r - k$.
            """,
    ),
    Exercise(
        name="14.2",
        title="As few bytes, in fewer steps",
        difficulty=3,
        minutes=60,
        takes=function("mine(comm, x)"),
        judge=lambda f: judged(f, (2, 4, 8), {2: 2, 4: 4, 8: 6}),
        task="""
            The same with no more than **$2 \\lg p$ steps**, for powers of two: Rabenseifner's
            algorithm.
            """,
        hint="""
            Halve: with the rank at distance $p/2$ exchange halves and add, then with the one at
            $p/4$ quarters, and so on. Then all the way back, doubling.
            """,
        solution="`workbench/collectives/all_reduce_rabenseifner.py` is one.",
    ),
)
