"""The failure of a run: the cause before its consequences.

Of ranks that ended without a report the first is the cause. Of those that reported an error the one
that knows most is: a rank that waited for it, or was told to end, reports a consequence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.common.errors import How, LastReport, PeerLost, WorkbenchError, from_fields
from workbench.common.names import named_ranks
from workbench.experiment.faults import Corrupt, FailToStart, Fault, Kill, Preempt
from workbench.launchers.processes.rank_handle import LocalRank
from workbench.rank.stack_dumps import ASK
from workbench.shared_memory.control_block import BY_HAND, ITERATION, Control
from workbench.shared_memory.segments import describe_end, how_it_ended, process_state

if TYPE_CHECKING:
    import polars as pl

    from workbench.experiment.spec import Experiment
    from workbench.launchers.processes.launcher import RankHandle
    from workbench.rank.stack_dumps import Lookout
    from workbench.store.event_store import Store

_FATAL = r"kill|preempt|fail to start|corrupt .*"  # names of rows of faults that may end a run

Reports = Mapping[int, Mapping[str, Any]]  # of the ranks that failed, as rank/main.py sends them


def what_went_wrong(
    lost: Mapping[int, int],
    failures: Reports,
    pids: Mapping[int, int],
    iterations: Mapping[int, int],
    now: pl.DataFrame,
    last: Collection[int] = (),
) -> WorkbenchError | None:
    """Return the error of the run; None if there is none. ``last``: ranks that were lost when all
    others had finished.

    ``lost``: how ranks ended that reported nothing (exit codes); ``iterations``: where they were;
    ``now``: the status of all lanes when the run failed (``store.now``).
    """
    if lost:
        rank, code = min(lost.items())
        under_way = _under_way(failures, now)
        more = "Under way: " + ("; ".join(_merged(under_way)) or "nothing is known")
        if rank in last:
            more = "All other ranks had finished, and none has what this rank had to report"
        return PeerLost(
            f"rank {rank} (process {pids[rank]}) {how_it_ended(code)} in iteration "
            f"{iterations[rank] + 1}. {more}",
            rank,
            how=how_of(code),
            code=code,
            doing=f"iteration {iterations[rank] + 1}",
            under_way=under_way,
        )
    lone = {rank: report for rank, report in failures.items() if report["kind"] == "PeerLost"}
    reports = {rank: report for rank, report in failures.items() if rank not in lone}
    if reports and not (lone and all(map(_told_to_end, reports.values()))):
        return _raised_error(reports, pids)
    if lone:  # a rank that was told to end meanwhile knows nothing of it
        return from_fields(next(iter(lone.values())))
    return None


def name_planned(exp: Experiment, error: WorkbenchError, store: Store) -> None:
    """Have the error name the fault of the experiment that caused it, if one did: the last one of
    the rank that failed, unless the user did that.
    """
    import polars as pl

    text = pl.col("kind", "name", "lane", "group").cast(pl.String)
    struck = pl.when(pl.col("rank") < 0).then("peer").otherwise("rank")
    faults = store.scan().filter(struck == error.rank).with_columns(text)
    fatal = faults.filter(kind="fault").filter(pl.col("name").str.contains(f"^({_FATAL})$"))
    for row in fatal.sort("end_ns").tail(1).collect().iter_rows(named=True):
        causes = [one for one in exp.faults if _row_of(one) == (error.rank, row["name"])]
        if not causes or row["lane"] == "driver" or row["group"] == BY_HAND:
            continue
        cause = min(causes, key=lambda one: getattr(one, "at_iteration", -1) != row["iteration"])
        error.planned = repr(cause)
        error.args = (f"{error}. A fault of the experiment did it: {cause!r}",)


def _row_of(fault: Fault) -> tuple[int, str]:
    """Return the rank that a fault ends, and the name of its row."""
    match fault:
        case Corrupt(rank=rank, kind=kind):
            return rank, f"corrupt {kind}"
        case Kill(rank=rank) | Preempt(rank=rank) | FailToStart(rank=rank):
            return rank, fault.fault.replace("_", " ")
    return -1, ""


def where_lost(control: Control, lost: Iterable[int], iterations: int) -> dict[int, int]:
    """Return the iteration that each lost rank was in; one that has trained counts what is done."""
    return {rank: min(control.rank_word(rank, ITERATION), iterations - 1) for rank in lost}


def seen_to_end(failures: Reports) -> set[int]:
    """Return the ranks that others saw end."""
    lost = [report for report in failures.values() if report["kind"] == "PeerLost"]
    return {report["rank"] for report in lost if report["how"] == "ended"}


def end_to_come(failures: Reports, handles: Iterable[RankHandle]) -> bool:
    """Return whether a rank of this host that others saw end has yet to get its exit code: a
    process that used a GPU frees it first, which takes seconds where many share it.
    """
    ended = seen_to_end(failures)
    here = [one for one in handles if isinstance(one, LocalRank)]
    return any(one.rank in ended and one.code is None for one in here)


def how_of(code: int) -> How:
    """Return how a process ended, from its exit code as ``waitstatus_to_exitcode`` gives it."""
    return "killed" if code < 0 else "exited" if code else "ended"


def _told_to_end(report: Mapping[str, Any]) -> bool:
    return bool(report["how"] == "aborted")


def _raised_error(reports: Reports, pids: Mapping[int, int]) -> WorkbenchError:
    """Return what the rank that knows most raised; below it what others raised that differs."""
    rank, report = min(reports.items(), key=lambda item: (_knows_least(item[1]), item[0]))
    text = report["text"]
    if report["kind"] == "RankError":
        return from_fields(report, f"rank {rank} raised:\n{text}")
    others = {
        other: one["text"]
        for other, one in reports.items()
        if one["text"] != text and not _told_to_end(one)
    }
    lines = (
        words if words.startswith(f"rank {other} ") else f"rank {other}: {words}"
        for other, words in others.items()
    )
    more = "".join(f"\n  {line}" for line in lines)
    return from_fields(report, text + more + _stopped_ranks(pids))


def _stopped_ranks(pids: Mapping[int, int]) -> str:
    """Return a line for each rank that is stopped right now.

    Ranks cannot report it themselves: one may wait for a rank that itself waits for a stopped one.
    """
    return "".join(
        f"\n  rank {rank} (process {pid}) is stopped (SIGSTOP)"
        for rank, pid in pids.items()
        if process_state(pid) in "Tt"
    )


def _under_way(failures: Reports, now: pl.DataFrame) -> list[LastReport]:
    """Return what every rank was in when the run failed, dead ones too: what it raised, or else its
    status.
    """
    raised = {
        rank: LastReport(rank, report["text"], error=_fields(report))
        for rank, report in failures.items()
        if report["kind"] != "WorkbenchError"
    }
    standing = {one.rank: one for one in reversed([*_standing(now)])}
    return [one for _, one in sorted((standing | raised).items())]


def _merged(reports: Iterable[LastReport]) -> Iterator[str]:
    """Yield the reports in words; those of ranks that tell of the same are one."""
    alike: dict[object, list[LastReport]] = {}
    for one in reports:
        error = one.error and tuple(one.error.get(name) for name in ("rank", "peer", "doing"))
        alike.setdefault(error or one.words, []).append(one)
    for group in alike.values():
        words = min((one.words for one in group), key=len)
        yield f"{named_ranks(one.rank for one in group)}: {words}"


def _fields(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in ("failed", "text")}


def _standing(now: pl.DataFrame) -> Iterator[LastReport]:
    """Yield what the lanes of each rank are in."""
    for row in now.iter_rows(named=True):
        if row["rank"] >= 0:
            yield standing(row)


def standing(row: Mapping[str, Any]) -> LastReport:
    """Return what one lane is in, from its row of ``store.now``."""
    waits = row["kind"] == "wait" and not row["collective"]
    named = ("call" if waits else row["collective"] or row["kind"], row["op"])
    if waits and row["op"] < 0:
        named = ("a wait", -1)
    doing = named[0] + ("" if named[1] < 0 else f" {named[1] + 1}")
    if row["step"] >= 0:
        doing += f", step {row['step'] + 1}, chunk {row['chunk']}"
    return LastReport(row["rank"], f"{'waiting ' if waits else ''}in {doing}", doing)


def _knows_least(report: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return a key that sorts reports. A rank that was told to end knows nothing of the cause; one
    that waits for a stopped process knows more than one that waits for a rank that waits itself.
    """
    return _told_to_end(report), report["how"] != "stopped"


def places_of(handles: Iterable[RankHandle], lookout: Lookout, exp: Experiment) -> list[str]:
    """Return where in the user's code each of these ranks is, which say nothing any more."""
    result = []
    for one in handles:
        if process_state(one.pid) in "TtZX":
            continue
        if place := lookout.place(one.rank, partial(one.signal, ASK)):
            result.append(f"rank {one.rank} (process {one.pid}) is at {place.words(exp)}")
    return result


# ---- as data: stored with a run, and sent to its pages


def as_facts(error: WorkbenchError) -> dict[str, Any]:
    """Return the error of a run as plain values; ``under_way`` has the last report of each rank."""
    return {**error.as_fields(), "under_way": [asdict(one) for one in error.under_way]}


def read_facts(text: str) -> dict[str, Any] | None:
    """Return the facts of ``as_facts`` from untrusted JSON; None if it is something else."""
    try:
        facts = json.loads(text)
        reports = [
            LastReport(int(one["rank"]), str(one["words"]), str(one["doing"]), _error(one["error"]))
            for one in facts["under_way"]
        ]
        return {**_fields_of(facts), "under_way": [asdict(one) for one in reports]}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _error(report: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if report is None else _fields_of(report, "text")


def _fields_of(error: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """Return the fields of an error, each of its own type."""
    blank = WorkbenchError().as_fields()
    return {name: type(blank[name])(error[name]) for name in blank if name not in without}


def summary(facts: Mapping[str, Any]) -> str:
    """Return why a run failed, in one sentence without numbers of processes; "" if only its message
    tells.
    """
    rank, peer, doing = facts["rank"], facts["peer"], facts["doing"]
    if facts["kind"] != "PeerLost" or rank < 0 or not doing:
        return ""
    if peer < 0:
        planned = ", as the experiment planned" if facts["planned"] else ""
        return f"Rank {rank} {how_it_ended(facts['code'])} in {doing}{planned}"
    words = "left the group" if facts["how"] == "left" else "ended"
    return f"Rank {rank} {words} while rank {peer} was in {doing}"


def for_page(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts with the sentences that a page shows: ``summary``, ``end`` (how the rank
    ended) and, of each last report, ``said``: its words without numbers of processes.
    """
    reports = [{**one, "said": _clause(one["error"]) or one["words"]} for one in facts["under_way"]]
    end = {"raised": "raised an error", "ended": "its process ended"}.get(
        facts["how"], describe_end(facts["code"])
    )
    return {**facts, "summary": summary(facts), "end": end, "under_way": reports}


def _clause(error: Mapping[str, Any] | None) -> str:
    text = summary(error) if error else ""
    return text[:1].lower() + text[1:]
