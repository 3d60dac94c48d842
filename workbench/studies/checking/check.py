"""``wb.check``: run a collective algorithm on real ranks over many cases, and judge it.

Every case runs twice: in eager mode, and in rendezvous mode, where a send returns only when the
message has been received. An algorithm that relies on buffered messages deadlocks there.
"""

from __future__ import annotations

import ast
import inspect
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import decode_source
from typing import Any

from workbench.collectives import refusal, takes_of
from workbench.common import syntax
from workbench.common.arguments import (
    Algorithm,
    Dtypes,
    Elements,
    RanksOrOne,
    Seconds,
    Text,
    checked,
)
from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest
from workbench.runs.progress import show_cases
from workbench.studies.checking.cases import DTYPES, EAGER, RENDEZVOUS, Case, default_sizes, plan
from workbench.studies.checking.judge import NOT_RUN, Verdict, accept_rounding, judge
from workbench.studies.checking.rank_pool import Outcome, RankPool, Subject
from workbench.studies.checking.report import Report
from workbench.studies.checking.steps import traffic
from workbench.studies.checking.waiting import CodePosition
from workbench.user_code.source import Source, capture, load, split_path

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
MOST_BROKEN = 3  # the check ends after so many cases that broke their ranks without a deadlock


@checked
def check(
    operation: Text,
    function: Algorithm,
    *,
    ranks: RanksOrOne = RANKS,
    sizes: Elements | None = None,
    dtypes: Dtypes = ("float32", "float64", "int64"),
    timeout: Seconds = 5.0,
    progress: bool | None = None,
) -> Report:
    """Run ``function`` as ``operation`` on real ranks, and report what holds of it.

    operation  all_reduce, broadcast, reduce, gather, scatter, all_gather, reduce_scatter,
               all_to_all or barrier.
    function   your function, from a cell or a file, or the name of an algorithm of collectives/.
               Tensors are flat torch tensors. ``all_reduce(comm, x)`` or ``(comm, x, reduce)``
               returns the sum or leaves it in x; ``broadcast(comm, x, root)``;
               ``reduce(comm, x, root)``: the root's x becomes the sum; ``gather`` and
               ``scatter(comm, x, into, root)``, where ``into`` or x is None except on the root;
               ``all_gather`` and ``reduce_scatter(comm, x, into)``;
               ``all_to_all(comm, x, into, sends, receives)``: elements for and from each rank;
               ``barrier(comm)``.
    ranks      numbers of ranks.
    sizes      elements of x (of one rank's share in gather, scatter, all_gather, reduce_scatter,
               all_to_all); by default 0, 1, 2, n-1, n, n+1, 500, 1000 and 4097.
    dtypes     of float32, float64, int64, int32, float16.
    timeout    seconds for one case, without the time in which its ranks wait for cores. A deadlock
               is found within one second.
    progress   a bar in the terminal, a line in a notebook (default: where one can be shown).

    An interrupt ends the check and its ranks at once; the error names the case that was running.
    Raises SpecError for invalid arguments, before any rank starts.

    >>> print(wb.check("all_reduce", "ring", ranks=(2, 4), sizes=1000))
    """
    subject, reduces, takes = _subject(operation, function)
    counts = _counts(ranks)
    chosen_sizes = None if sizes is None else _sizes(sizes)
    names = _dtypes(dtypes)
    if not timeout > 0:
        raise SpecError(f"timeout must be more than 0 seconds; got {timeout!r}")
    refused = {n: reason for n in counts if (reason := takes(n))}
    cases = {
        n: plan(operation, n, chosen_sizes or default_sizes(n), names, reduces)
        for n in counts
        if n not in refused
    }
    verdicts: list[Verdict] = []
    tables: dict[int, Any] = {}
    began = time.monotonic()
    _run_shown(subject, cases.values(), timeout, progress, verdicts, tables)
    return Report(
        operation,
        subject.name,
        tuple(accept_rounding(verdicts)),
        refused,
        time.monotonic() - began,
        tables,
    )


def _run_shown(
    subject: Subject,
    planned: Collection[list[Case]],
    timeout: float,
    progress: bool | None,
    verdicts: list[Verdict],
    tables: dict[int, Any],
) -> None:
    """Run all cases with a line that says how far they are; an interrupt names the present one."""
    total = 2 * sum(map(len, planned))
    begun: list[Case] = []

    def begins(case: Case) -> None:
        begun.append(case)
        show(f"{case.words}, {case.mode}")

    with show_cases(f"check {subject.name}", total, progress) as show:
        try:
            _run_all(subject, planned, timeout, begins, verdicts, tables)
        except KeyboardInterrupt:  # name the case, not a line of our code
            raise KeyboardInterrupt(_interrupted(verdicts, begun, total)) from None


def _run_all(
    subject: Subject,
    planned: Iterable[list[Case]],
    timeout: float,
    begins: Callable[[Case], None],
    verdicts: list[Verdict],
    tables: dict[int, Any],
) -> None:
    """Fill ``verdicts`` with every case's verdict, and ``tables`` with the event rows of each."""
    broken = 0
    for cases in planned:
        todo = [replace(case, mode=mode) for mode in (EAGER, RENDEZVOUS) for case in cases]
        while todo:
            if broken >= MOST_BROKEN:
                verdicts += [Verdict(case, NOT_RUN) for case in todo]
                break
            batch, events = _run(subject, todo, timeout, begins)
            tables |= {len(verdicts) + i: events for i in range(len(batch))}
            verdicts += batch
            todo = todo[len(batch) :]
            if batch[-1].broke:  # the rest of its mode would end the same way
                broken += batch[-1].how not in ("deadlock", "unreceived")
                mode = batch[-1].case.mode
                verdicts += [Verdict(case, NOT_RUN) for case in todo if case.mode == mode]
                todo = [case for case in todo if case.mode != mode]


def _run(
    subject: Subject, cases: list[Case], timeout: float, begins: Callable[[Case], None]
) -> tuple[list[Verdict], Any]:
    """Run these cases in order on one pool of ranks, up to the first case that breaks it.

    Return their verdicts and the event rows.
    """
    pool = RankPool(subject, cases[0].ranks)
    outcomes: list[Outcome] = []
    try:
        for case in cases:
            begins(case)
            outcomes.append(pool.run(case, timeout))
            if outcomes[-1].broke:
                break
        events = pool.events
    finally:
        pool.close()
    rows = traffic(events)
    return [judge(outcome, rows) for outcome in outcomes], events


def _interrupted(verdicts: Sequence[Verdict], begun: Sequence[Case], total: int) -> str:
    position = (
        f" in case {len(begun)} of {total} ({begun[-1].words}, {begun[-1].mode})" if begun else ""
    )
    first_bad = next(
        (verdict for verdict in verdicts if not verdict.ok and verdict.how != NOT_RUN), None
    )
    earlier = f"; before it, {first_bad.case.words}: {first_bad.words}" if first_bad else ""
    return f"the check was interrupted{position}; its ranks have ended{earlier}"


# -- arguments --


def _subject(
    operation: str, function: Callable[..., Any] | str
) -> tuple[Subject, bool, Callable[[int], str]]:
    """Return the subject, whether it takes ``reduce``, and a check of the number of ranks.

    The check returns the reason why the algorithm refuses a number of ranks, or "".
    """
    if operation not in PARAMETERS:
        near = nearest(str(operation), PARAMETERS)
        raise SpecError(f"no operation {operation!r}{near}. Allowed: {listed(PARAMETERS)}")
    if isinstance(function, str):
        prefix = f"{operation}_"
        implementation = load("collectives", function, operation, prefix)
        takes = partial(refusal, takes_of(implementation))
        name = path_and_name[1] if (path_and_name := split_path(function)) else function
        file = inspect.getsourcefile(implementation) or ""
        label = os.path.basename(file)
        lines = _text(file)
        subject = Subject(
            operation,
            name,
            function if not path_and_name else f"{path_and_name[0].resolve()}:{path_and_name[1]}",
            lambda line, inside: _place(line, inside, lines, label),
        )
    else:
        source = capture(function)
        implementation, name = function, source.name
        takes = partial(refusal, getattr(function, "takes", None))
        subject = Subject(
            operation, name, {"name": source.name, "code": source.code}, _places(source, function)
        )
    return subject, _reduces(operation, name, implementation), takes


def _places(source: Source, function: Callable[..., Any]) -> Callable[[int, str], CodePosition]:
    """Return a function that maps a line of the code that travels to the user's own line."""
    if origins := _origins(source, function):
        return lambda line, inside: _original_place(line, inside, source, origins)
    file = inspect.getsourcefile(inspect.unwrap(function)) or ""  # ranks import it from there
    lines = _text(file)
    return lambda line, inside: _place(line, inside, lines, os.path.basename(file))


def _reduces(operation: str, name: str, function: Callable[..., Any]) -> bool:
    """Return whether the function takes ``reduce``.

    Raises SpecError unless it takes the operation's arguments.
    """
    plain, more = PARAMETERS[operation]
    least = len(plain.split(", "))
    signature = inspect.signature(function)
    counts = [least, least + 1] if more else [least]
    if more and _takes(signature, least + 1):
        return True
    if _takes(signature, least):
        return False
    forms = " or ".join(
        f"{name}({plain}{', ' + more if count > least else ''})" for count in counts
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


def _sizes(sizes: int | Iterable[int]) -> tuple[int, ...]:
    lengths = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    bad = [n for n in lengths if not isinstance(n, int) or isinstance(n, bool) or n < 0]
    if bad or not lengths:
        raise SpecError(f"sizes must be elements, 0 or more; got {bad[0] if bad else 'none'!r}")
    return lengths


def _dtypes(dtypes: str | Iterable[str]) -> tuple[str, ...]:
    names = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    names = tuple(str(name).removeprefix("torch.") for name in names)
    for name in names:
        if name not in DTYPES:
            raise SpecError(f"dtype {name!r}{nearest(name, DTYPES)}: check takes {listed(DTYPES)}")
    if not names:
        raise SpecError(f"dtypes must name at least one of {listed(DTYPES)}")
    return names


# -- lines in the user's own files --


def _text(file: str) -> list[str]:
    try:
        with open(file, "rb") as source:
            return decode_source(source.read()).splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []


def _place(line: int, inside: str, lines: Sequence[str], label: str) -> CodePosition:
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return CodePosition(line, text, inside, label)


def _origins(source: Source, function: Callable[..., Any]) -> list[tuple[int, int, int, str]]:
    """Return first line, last line, original first line and file of each definition that travels.

    The file is "" for a cell.
    """
    names = getattr(function, "__globals__", {})
    spans = []
    for node in syntax.parse(source.code).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        value = function if node.name == source.name else names.get(node.name)
        first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        try:
            value = inspect.unwrap(value)  # type: ignore[arg-type]
            _, original = inspect.getsourcelines(value)
            file = os.path.basename(inspect.getsourcefile(value) or "")
        except (OSError, TypeError):
            continue
        file = file if file.endswith(".py") and not file.startswith("<") else ""
        cell = "ipykernel" in (inspect.getsourcefile(value) or "")
        spans.append((first, node.end_lineno or first, max(original, 1), "" if cell else file))
    return spans


def _original_place(
    line: int, inside: str, source: Source, origins: Sequence[tuple[int, int, int, str]]
) -> CodePosition:
    lines = source.code.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    for first, last, original, file in origins:
        if first <= line <= last:
            return CodePosition(original + line - first, text, inside, file)
    return CodePosition(line, text, inside)
