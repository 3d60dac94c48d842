"""``workbench watch JOB``: a job that someone else started, as a run that can only be looked at.

    WORKBENCH_TRACE=FOLDER torchrun --nproc-per-node 4 train.py

The folder may come later than the watcher, as may each rank. What a page needs of a run is here
(views.facts.Watched); what would change the ranks is not, so that every page is read-only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from workbench.common.arguments import Place, Seconds, checked
from workbench.common.errors import How, WorkbenchError
from workbench.common.units import counted
from workbench.runs.display_mixin import Shown
from workbench.runs.failure import as_facts, read_facts
from workbench.runs.job_address import folder_at
from workbench.runs.job_failure import end_words, note_failure
from workbench.shared_memory.control_state import ControlState
from workbench.store.event_store import Store
from workbench.store.result import Overhead
from workbench.store.trace_follower import Follower
from workbench.store.trace_rank import Rank


class Watching(Shown):
    """The job that writes to ``folder``, followed from now on by a thread, until it is over or
    ``close``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open the trace folder, or that of the job whose page has this address. Raises
        WorkbenchError if ``folder`` exists and is not a folder, or no page of a job answers.
        """
        self.folder = folder_at(folder)
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
        self._follower = Follower(self.store, self.folder, self._conclude)
        self._follower.start()

    def __repr__(self) -> str:
        return f"Watching({str(self.folder)!r}: {self.state_in_words[1]})"

    @property
    def done(self) -> bool:
        """Whether all ranks have ended, and all that they wrote is read."""
        return self._follower.over

    @property
    def ranks(self) -> int:
        """The most ranks that the job has had, as far as it is known."""
        return self._follower.size

    @property
    def pids(self) -> dict[int, int]:
        return {number: rank.source.pid for number, rank in sorted(self._ranks.items())}

    @property
    def problems(self) -> dict[str, str]:
        """The files of the folder that are not read, with the reasons."""
        return dict(self._follower.problems)

    @property
    def state_in_words(self) -> tuple[str, str]:
        """starting, running, finished or failed, and a sentence."""
        present, ranks = len(self._follower.newest), self._follower.expected
        problems = " ".join(self._problem_notes())
        if self.done and (error := self.error):
            return "failed", error
        if self.done:
            all_of = "The rank has" if ranks == 1 else f"All {ranks} ranks have"
            if any(rank.unread for rank in self._follower.newest.values()):
                all_of = "What could be read of the ranks has"
            return "finished", f"{all_of} ended{self._after_restarts}. {problems}".strip()
        if not present:
            wait = f"Waiting for ranks that write to WORKBENCH_TRACE={self.folder}."
            return "starting", f"{wait} {problems}".strip()
        if present < ranks:
            words = f"{present} of {ranks} ranks {'has' if present == 1 else 'have'} come."
            return ("running" if len(self.store) else "starting"), f"{words} {problems}".strip()
        words = f"{self._restarted} {problems}".strip()
        return ("running" if len(self.store) else "starting"), words

    @property
    def _restarts(self) -> int:
        return max((rank.generation for rank in self._ranks.values()), default=0)

    @property
    def _after_restarts(self) -> str:
        return f", after {counted(self._restarts, 'restart')}" if self._restarts else ""

    @property
    def _restarted(self) -> str:
        """Return what torchrun does, or has done, with ranks that have failed; "" if nothing."""
        again = [
            n for n, rank in self._follower.newest.items() if rank.gone and rank.may_come_again
        ]
        if again:
            which = f"rank{'s' * (len(again) > 1)} {', '.join(map(str, sorted(again)))}"
            return f"Waiting for torchrun to restart {which}."
        return f"Restarted by torchrun {counted(self._restarts, 'time')}." if self._restarts else ""

    @property
    def error(self) -> str:
        """The reason why the job failed, the cause first; "" if it did not, or goes on."""
        if not self.done:
            return ""
        if words := self.store.metadata.get("error", ""):
            return words
        missing = sorted(set(range(self._follower.expected)) - set(self._follower.newest))
        return f"rank {missing[0]} never came" if missing else ""

    def _conclude(self) -> None:
        """Note why the job failed, once all of its ranks have ended."""
        known = {n: r.ended for n, r in self._follower.newest.items() if r.gone and not r.unread}
        note_failure(self.store.metadata, known, self.pids, self.store.events)

    @property
    def control_state(self) -> ControlState:
        """The ranks that have arrived, and those that have ended with an error."""
        return ControlState(
            held=False,
            standing=(),
            slow_motion=1,
            slow={},
            frozen=(),
            links={},
            arrived=tuple(sorted(self._ranks)),
            ended=self._ends(),
            how={number: self._how(number) for number in self._ends()},
        )

    @property
    def failure(self) -> dict[str, Any] | None:
        """The failure as pages take it (``failure.as_facts``); None while there is none."""
        text = self.error
        facts = read_facts(self.store.metadata.get("failure", ""))
        return facts or (as_facts(WorkbenchError(text)) if text else None)

    def overhead(self) -> Overhead:
        """Return what recording has cost, as the ranks' own meters say."""
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

    @checked
    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the job is over, or for ``timeout`` seconds; return whether it is over."""
        return _until(lambda: self.done, timeout)

    def close(self) -> None:
        """Stop following. The job goes on, and so do its records."""
        self._follower.stop()

    @property
    def _ranks(self) -> dict[int, Rank]:
        return dict(self._follower.ranks)

    def _problem_notes(self) -> list[str]:
        return [f"{name}: {words}." for name, words in self.problems.items()]

    def _ends(self) -> dict[int, str]:
        """Return the ranks of the newest attempt that have ended badly, and how."""
        return {
            number: end_words(rank.ended)
            for number, rank in sorted(self._follower.newest.items())
            if rank.gone and not rank.unread and rank.last_words != ""
        }

    def _how(self, number: int) -> How:
        """Return how a rank ended that did not end well."""
        return "raised" if self._ranks[number].last_words else "killed"


@checked
def watch(folder: Place) -> Watching:
    """Watch a job that another program started, and that records into ``folder``: as ``workbench
    attach`` prints it, or as WORKBENCH_TRACE names it. The folder may come later than the watcher.
    On this machine, the address of the job's page works as well as its folder.

    What comes back shows itself in Jupyter, follows the job, and changes nothing in it; ``wait()``
    waits for the job's end, and ``close()`` ends the following.

    >>> wb.watch("/tmp/trace")
    """
    return Watching(folder)


def _until(condition: Callable[[], bool], timeout: float | None) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout
    while not condition():
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
