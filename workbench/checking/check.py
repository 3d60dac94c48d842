"""``wb.check``: run a collective algorithm on real ranks over many cases, and judge it.

Every case runs twice: as it is, and in rendezvous, where a send returns only when it has been
received. What works only because messages lie in slots for a while deadlocks there.
"""

from __future__ import annotations

import ast
import inspect
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from workbench.checking.cases import DTYPES, EAGER, RENDEZVOUS, Case, default_sizes, plan
from workbench.checking.crew import Crew, Outcome, Subject
from workbench.checking.judge import NOT_RUN, Judged, judged
from workbench.checking.report import Report
from workbench.checking.steps import traffic
from workbench.checking.waiting import Place
from workbench.collectives import refusal, takes_of
from workbench.errors import SpecError
from workbench.progress import show_cases
from workbench.source import (
    Source,
    capture,
    listed,
    load,
    nearest,
    split_path,
)

RANKS = (1, 2, 3, 4, 5, 8)
PARAMETERS = {
    "all_reduce": ("comm, x", "reduce"),
    "broadcast": ("comm, x, root", ""),
    "reduce": ("comm, x, root", "reduce"),
    "gather": ("comm, x, into, root", ""),
    "scatter": ("comm, x, into, root", ""),
    "all_gather": ("comm, x, into", ""),
    "reduce_scatter": ("comm, x, into", "reduce"),
    "all_to_all": ("comm, x, into, sends, receives", ""),
    "barrier": ("comm", ""),
}
MOST_BROKEN = (
    3  # cases that broke their ranks for another reason than a deadlock; then it is enough
)


def check(
    operation: str,
    function: Callable[..., Any] | str,
    *,
    ranks: int | Iterable[int] = RANKS,
    sizes: Iterable[int] | None = None,
    dtypes: Iterable[str] = ("float32", "float64", "int64"),
    timeout: float = 5.0,
    progress: bool | None = None,
) -> Report:
    """Run ``function`` as ``operation`` on real ranks, and say what holds of it.

    operation  all_reduce, broadcast, reduce, gather, scatter, all_gather, reduce_scatter,
               all_to_all or barrier.
    function   yours, from a cell or a file, or the name of an algorithm of collectives/. Tensors
               are flat torch tensors. ``all_reduce(comm, x)`` or ``(comm, x, reduce)`` returns the
               sum or leaves it in x; ``broadcast(comm, x, root)``; ``reduce(comm, x, root)``: the
               root's x becomes the sum; ``gather`` and ``scatter(comm, x, into, root)``, where
               ``into`` or x is None but on the root; ``all_gather`` and
               ``reduce_scatter(comm, x, into)``; ``all_to_all(comm, x, into, sends, receives)``:
               elements for and from each rank; ``barrier(comm)``.
    ranks      numbers of ranks. ``sizes``: elements of x (of one rank's part in gather, scatter,
               all_gather, reduce_scatter, all_to_all); by default 0, 1, 2, n-1, n, n+1, 500, 1000
               and 4097.
    dtypes     of float32, float64, int64, int32, float16.
    timeout    seconds that one case may take. A deadlock is found within one.
    progress   a bar in the terminal, a line in a notebook (default: if there is one).

    An interrupt ends it, and its ranks, at once; it says how far the check had come.
    Raises SpecError for what cannot be asked, before anything starts.
    """
    subject, reduces, takes = _subject(operation, function)
    counts = _counts(ranks)
    asked = None if sizes is None else _sizes(sizes)
    names = _dtypes(dtypes)
    if not timeout > 0:
        raise SpecError(f"timeout must be more than 0 seconds; got {timeout!r}")
    refused = {n: words for n in counts if (words := takes(n))}
    cases = {
        n: plan(operation, n, asked or default_sizes(n), names, reduces)
        for n in counts
        if n not in refused
    }
    found: list[Judged] = []
    keep: dict[int, Any] = {}
    began = time.monotonic()
    total = 2 * sum(map(len, cases.values()))
    begun: list[Case] = []

    def begins(case: Case) -> None:
        begun.append(case)
        tell(f"{case.words}, {case.mode}")

    with show_cases(f"check {subject.name}", total, progress) as tell:
        try:
            _run_all(subject, cases.values(), timeout, begins, found, keep)
        except KeyboardInterrupt:  # says how far it had come, not where in our code it was
            raise KeyboardInterrupt(_interrupted(found, begun, total)) from None
    return Report(operation, subject.name, tuple(found), refused, time.monotonic() - began, keep)


def _run_all(
    subject: Subject, planned: Iterable[list[Case]], timeout: float,
    begins: Callable[[Case], None], found: list[Judged], keep: dict[int, Any],
) -> None:  # fmt: skip
    """Fill ``found`` with the verdict of every case, and ``keep`` with the rows of each."""
    broken = 0
    for cases in planned:
        todo = [replace(case, mode=mode) for mode in (EAGER, RENDEZVOUS) for case in cases]
        while todo:
            if broken >= MOST_BROKEN:
                found += [Judged(case, NOT_RUN) for case in todo]
                break
            part, events = _run(subject, todo, timeout, begins)
            keep |= {len(found) + i: events for i in range(len(part))}
            found += part
            todo = todo[len(part) :]
            if part[-1].broke:  # the rest of its mode would end alike
                broken += part[-1].how not in ("deadlock", "unreceived")
                mode = part[-1].case.mode
                found += [Judged(case, NOT_RUN) for case in todo if case.mode == mode]
                todo = [case for case in todo if case.mode != mode]


def _run(
    subject: Subject, cases: list[Case], timeout: float, begins: Callable[[Case], None]
) -> tuple[list[Judged], Any]:
    """These cases one after the other on one crew, up to the first that breaks it."""
    crew = Crew(subject, cases[0].ranks)
    outcomes: list[Outcome] = []
    try:
        for case in cases:
            begins(case)
            outcomes.append(crew.run(case, timeout))
            if outcomes[-1].broke:
                break
        events = crew.events
    finally:
        crew.close()
    rows = traffic(events)
    return [judged(one, rows) for one in outcomes], events


def _interrupted(found: Sequence[Judged], begun: Sequence[Case], total: int) -> str:
    at = f" in case {len(begun)} of {total} ({begun[-1].words}, {begun[-1].mode})" if begun else ""
    bad = next((one for one in found if not one.ok and one.how != NOT_RUN), None)
    so_far = f"; before it, {bad.case.words}: {bad.words}" if bad else ""
    return f"the check was interrupted{at}; its ranks have ended{so_far}"


# -- what is asked --


def _subject(
    operation: str, function: Callable[..., Any] | str
) -> tuple[Subject, bool, Callable[[int], str]]:
    """What is checked; whether it is told how to combine; and which n it cannot take, in words."""
    if operation not in PARAMETERS:
        near = nearest(str(operation), PARAMETERS)
        raise SpecError(f"no operation {operation!r}{near}. There is: {listed(PARAMETERS)}")
    if isinstance(function, str):
        prefix = f"{operation}_"
        real = load("collectives", function, operation, prefix)
        takes = partial(refusal, takes_of(real))
        name = place[1] if (place := split_path(function)) else function
        file = inspect.getsourcefile(real) or ""
        label = os.path.basename(file)
        lines = _text(file)
        subject = Subject(
            operation, name, function if not place else f"{place[0].resolve()}:{place[1]}",
            lambda line, inside: _place(line, inside, lines, label),
        )  # fmt: skip
    else:
        source = capture(function)
        real, name = function, source.name
        takes = partial(refusal, getattr(function, "takes", None))
        subject = Subject(
            operation, name, {"name": source.name, "code": source.code}, _places(source, function)
        )  # fmt: skip
    return subject, _reduces(operation, name, real), takes


def _places(source: Source, function: Callable[..., Any]) -> Callable[[int, str], Place]:
    """How to say where a line of the code that travels is in the user's own."""
    if origins := _origins(source, function):
        return lambda line, inside: _travelled(line, inside, source, origins)
    file = inspect.getsourcefile(inspect.unwrap(function)) or ""  # ranks import it from there
    lines = _text(file)
    return lambda line, inside: _place(line, inside, lines, os.path.basename(file))


def _reduces(operation: str, name: str, function: Callable[..., Any]) -> bool:
    """Does it take ``reduce``? Raises SpecError unless it takes what the operation gives."""
    plain, more = PARAMETERS[operation]
    least = len(plain.split(", "))
    signature = inspect.signature(function)
    wanted = [least, least + 1] if more else [least]
    if more and _takes(signature, least + 1):
        return True
    if _takes(signature, least):
        return False
    forms = " or ".join(
        f"{name}({plain}{', ' + more if count > least else ''})" for count in wanted
    )
    raise SpecError(f"as {operation}, {name}{signature} must be callable as {forms}")


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _counts(ranks: int | Iterable[int]) -> tuple[int, ...]:
    counts = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    bad = [n for n in counts if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 64]
    if bad or not counts:
        raise SpecError(f"ranks must be numbers from 1 to 64; got {bad[0] if bad else 'none'!r}")
    return tuple(dict.fromkeys(counts))


def _sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    asked = tuple(sizes)
    bad = [n for n in asked if not isinstance(n, int) or isinstance(n, bool) or n < 0]
    if bad or not asked:
        raise SpecError(f"sizes must be elements, 0 or more; got {bad[0] if bad else 'none'!r}")
    return asked


def _dtypes(dtypes: Iterable[str]) -> tuple[str, ...]:
    names = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    names = tuple(str(name).removeprefix("torch.") for name in names)
    for name in names:
        if name not in DTYPES:
            raise SpecError(f"dtype {name!r}{nearest(name, DTYPES)}: check takes {listed(DTYPES)}")
    if not names:
        raise SpecError(f"dtypes must name at least one of {listed(DTYPES)}")
    return names


# -- lines as the user counts them --


def _text(file: str) -> list[str]:
    try:
        with open(file) as text:
            return text.read().splitlines()
    except OSError:
        return []


def _place(line: int, inside: str, lines: Sequence[str], label: str) -> Place:
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Place(line, text, inside, label)


def _origins(source: Source, function: Callable[..., Any]) -> list[tuple[int, int, int, str]]:
    """First and last line of each definition in the code that travels, the user's own number of the
    first, and the file ("" for a cell)."""
    names = getattr(function, "__globals__", {})
    found = []
    for node in ast.parse(source.code).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        value = function if node.name == source.name else names.get(node.name)
        first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        try:
            value = inspect.unwrap(value)  # type: ignore[arg-type]
            _, own = inspect.getsourcelines(value)
            file = os.path.basename(inspect.getsourcefile(value) or "")
        except (OSError, TypeError):
            continue
        file = file if file.endswith(".py") and not file.startswith("<") else ""
        cell = "ipykernel" in (inspect.getsourcefile(value) or "")
        found.append((first, node.end_lineno or first, max(own, 1), "" if cell else file))
    return found


def _travelled(
    line: int, inside: str, source: Source, origins: Sequence[tuple[int, int, int, str]]
) -> Place:
    lines = source.code.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    for first, last, own, file in origins:
        if first <= line <= last:
            return Place(own + line - first, text, inside, file)
    return Place(line, text, inside)
