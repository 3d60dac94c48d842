"""``workbench watch FOLDER``: a job that someone else started, as a run that can only be looked at.

    WORKBENCH_TRACE=FOLDER torchrun --nproc-per-node 4 train.py

The folder may come later than the watcher, as may each rank. What a page needs of a run is here
(views.facts.Watched); what would change the ranks is not, so that every page is read-only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from workbench.control import ControlState
from workbench.errors import WorkbenchError
from workbench.following import Follower, Rank
from workbench.result import Overhead
from workbench.shown import Shown
from workbench.store import Store


class Watching(Shown):
    """The job that writes to ``folder``, followed from now on by a thread, until it is over or
    ``close``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises WorkbenchError if ``folder`` is there and is no folder."""
        self.folder = Path(folder).absolute()
        if self.folder.exists() and not self.folder.is_dir():
            raise WorkbenchError(
                f"{folder} is a file; watch a folder, the one that WORKBENCH_TRACE names"
            )
        self.store = Store(
            {
                "trace": str(self.folder),
                "title": self.folder.name,
                "cores": str(os.cpu_count() or 1),
            }
        )
        self._follower = Follower(self.store, self.folder)
        self._follower.start()

    def __repr__(self) -> str:
        return f"Watching({str(self.folder)!r}: {self.state_in_words[1]})"

    @property
    def done(self) -> bool:
        """Are all ranks gone, and what they wrote read?"""
        return self._follower.over

    @property
    def ranks(self) -> int:
        """How many the job has, as far as it is known."""
        return self._follower.size

    @property
    def pids(self) -> dict[int, int]:
        return {number: rank.source.pid for number, rank in sorted(self._ranks.items())}

    @property
    def problems(self) -> dict[str, str]:
        """What of the folder is not read, and why."""
        return dict(self._follower.problems)

    @property
    def state_in_words(self) -> tuple[str, str]:
        """starting, running, finished or failed, and a sentence."""
        here, ranks, problems = len(self._ranks), self.ranks, " ".join(self._told())
        if self.done and (error := self.error):
            return "failed", error
        if self.done:
            all_of = "The rank has" if ranks == 1 else f"All {ranks} ranks have"
            if any(rank.unread for rank in self._ranks.values()):
                all_of = "What could be read of the ranks has"
            return "finished", f"{all_of} ended. {problems}".strip()
        if not here:
            wait = f"Waiting for ranks that write to WORKBENCH_TRACE={self.folder}."
            return "starting", f"{wait} {problems}".strip()
        if here < ranks:
            words = f"{here} of {ranks} ranks {'has' if here == 1 else 'have'} come."
            return ("running" if len(self.store) else "starting"), f"{words} {problems}".strip()
        return ("running" if len(self.store) else "starting"), problems

    @property
    def error(self) -> str:
        """Why the job failed, the cause first; "" if it did not, or goes on."""
        if not self.done:
            return ""
        ends = self._ends()
        if not ends:
            missing = sorted(set(range(self.ranks)) - set(self._ranks))
            return f"rank {missing[0]} never came" if missing else ""
        cause = min(ends, key=lambda number: self._cause_first(number, ends[number]))
        rest = [number for number in sorted(ends) if number != cause]
        names = ", ".join(map(str, rest))
        after = f" Then rank{'s' * (len(rest) > 1)} {names} ended too." if rest else ""
        process = f"rank {cause} (process {self.pids[cause]})"
        return f"{process} {ends[cause]}{self._under_way(cause)}.{after}"

    @property
    def control_state(self) -> ControlState:
        """Who has come, and who has ended as it should not."""
        return ControlState(
            held=False, standing=(), slow_motion=1, slow={}, frozen=(), links={},
            arrived=tuple(sorted(self._ranks)), ended=self._ends(),
        )  # fmt: skip

    def overhead(self) -> Overhead:
        """What recording has cost, as the ranks' own meters say."""
        ranks = list(self._ranks.values())
        begin = min((rank.first_ns for rank in ranks), default=0.0)
        end = max((rank.last_ns for rank in ranks), default=0.0)
        return Overhead.of(
            len(self.store),
            self.store.dropped,
            [rank.metered() for rank in ranks],
            self._follower.cpu_ns * 1e-9,
            max(end - begin, 0.0) * 1e-9 * min(self.ranks, os.cpu_count() or 1),
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the job is over, or for ``timeout`` seconds. Is it over?"""
        return _until(lambda: self.done, timeout)

    def close(self) -> None:
        """Follow no longer. The job goes on, and so do its records."""
        self._follower.stop()

    @property
    def _ranks(self) -> dict[int, Rank]:
        return dict(self._follower.ranks)

    def _told(self) -> list[str]:
        return [f"{name}: {words}." for name, words in self.problems.items()]

    def _ends(self) -> dict[int, str]:
        """Ranks that are gone and did not end well, and how."""
        how = {
            number: rank.last_words
            for number, rank in self._ranks.items()
            if rank.gone and not rank.unread
        }  # "" ended well
        return {
            number: f"raised {words}" if words else "was killed, or crashed without a last word"
            for number, words in sorted(how.items())
            if words != ""
        }

    def _cause_first(self, number: int, words: str) -> tuple[bool, bool, float]:
        """A rank that lost a peer is a consequence, as is most often one that was killed after
        another had raised: torchrun does that.
        """
        lost = words.startswith("raised PeerLost")
        return lost, not words.startswith("raised"), self._ranks[number].gone_at

    def _under_way(self, number: int) -> str:
        for row in self.store.now.iter_rows(named=True):
            if row["rank"] == number:
                op = f" {row['op']}" if row["op"] >= 0 else ""
                step = f", step {row['step']}, chunk {row['chunk']}" if row["step"] >= 0 else ""
                return f" in {row['collective'] or row['kind']}{op}{step}"
        return ""


def _until(condition: Callable[[], bool], timeout: float | None) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout
    while not condition():
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
