"""What went wrong in a run: the cause before its consequences, from what ranks said and were in.

Of ranks that ended without a word the first is the cause; of those that said what they raised the
one that knows most, for whoever waited for it, or was told to end, tells a consequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench import errors
from workbench.control import ABORTED
from workbench.errors import PeerLost, RankError, WorkbenchError
from workbench.shared import how_it_ended, process_state

if TYPE_CHECKING:
    import polars as pl

Reports = Mapping[int, Mapping[str, Any]]  # of the ranks that failed, as rank.py sends them
_ERRORS: dict[str, type[WorkbenchError]] = {
    name: error
    for name, error in vars(errors).items()
    if isinstance(error, type) and issubclass(error, WorkbenchError)
}


def what_went_wrong(
    lost: Mapping[int, int],
    failures: Reports,
    pids: Mapping[int, int],
    iterations: Mapping[int, int],
    now: pl.DataFrame,
) -> WorkbenchError | None:
    """The error of the run; None if there is none.

    ``lost``: how ranks ended that said nothing (waitpid's status); ``iterations``: where they were;
    ``now``: the status of all lanes when the run failed (``store.now``).
    """
    if lost:
        rank, code = min(lost.items())
        return PeerLost(
            f"rank {rank} (process {pids[rank]}) {how_it_ended(code)} in iteration "
            f"{iterations[rank]}. Under way: {_under_way(failures, now)}",
            rank,
        )
    own = {rank: report for rank, report in failures.items() if report["kind"] != "PeerLost"}
    if own:
        return _raised(own, pids)
    if failures:
        _, report = next(iter(failures.items()))
        return PeerLost(report["text"], report["lost"])
    return None


def _raised(own: Reports, pids: Mapping[int, int]) -> WorkbenchError:
    """What the rank that knows most raised; below it what others raised that is not the same."""
    rank, report = min(own.items(), key=lambda item: (_knows_least(item[1]), item[0]))
    text = report["text"]
    if report["kind"] == "RankError":
        return RankError(f"rank {rank} raised:\n{text}", rank)
    others = [other for other in own if own[other]["text"] not in (text, ABORTED)]
    more = "".join(f"\n  rank {other}: {own[other]['text']}" for other in others)
    return _ERRORS.get(report["kind"], WorkbenchError)(text + more + _stopped(pids))


def _stopped(pids: Mapping[int, int]) -> str:
    """Who is stopped right now: a rank that waits for one that waits for it cannot know."""
    return "".join(
        f"\n  rank {rank} (process {pid}) is stopped (SIGSTOP)"
        for rank, pid in pids.items()
        if process_state(pid) in "Tt"
    )


def _under_way(failures: Reports, now: pl.DataFrame) -> str:
    """What every rank was in when the run failed, dead ones too, from the status blocks."""
    told = {
        rank: report["text"]
        for rank, report in failures.items()
        if report["kind"] != "WorkbenchError"
    }
    for row in now.iter_rows(named=True):
        if row["rank"] >= 0 and row["rank"] not in told:
            named = (row["collective"] or row["kind"], row["op"])
            what = " ".join(str(part) for part in named if part not in ("", -1))
            told[row["rank"]] = f"in {what}" + (
                f", step {row['step']}, chunk {row['chunk']}" if row["step"] >= 0 else ""
            )
    return (
        "; ".join(f"rank {rank}: {text}" for rank, text in sorted(told.items()))
        or "nothing was said"
    )


def _knows_least(report: Mapping[str, Any]) -> tuple[bool, bool]:
    """Sorts failed ranks' reports: whoever was told to end knows nothing of the cause; and who
    waits for a stopped process knows more than who waits for a rank that waits itself."""
    return report["text"] == ABORTED, "SIGSTOP" not in report["text"]
