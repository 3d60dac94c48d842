"""A session with the ranks of an audited job: asks are written, results read; all has limits."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from workbench.auditing.folder import hold, read, wait_for, write
from workbench.auditing.judging.case import Asking, CannotMeasure, Case, Results
from workbench.auditing.judging.plan import judge
from workbench.auditing.judging.words import put_into_words, report
from workbench.auditing.messages import Ask, Seen
from workbench.auditing.report import Audit
from workbench.auditing.starting import Job

_SLACK = 10.0  # seconds, beyond the limit that ranks themselves keep to
_WORDS = 12  # last lines of a script's output
Show = Callable[[str], None]


class Session:
    """A private folder, and what is asked through it."""

    def __init__(self, *, update: int, seed: int, lift: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="workbench-audit-"))
        self._alive = hold(self.folder)
        self._update, self._seed = update, seed
        settings = {"update": update, "lift": lift}
        write(self.folder / "settings", settings)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._alive)
        shutil.rmtree(self.folder, ignore_errors=True)

    def judge(self, job: Job, seconds: float, show: Show) -> Audit:
        """Judge a job, in so many seconds at most."""
        began = time.monotonic()
        case = Case(1, update=self._update, salt=self._seed)
        try:
            case = Case(self._size(job, seconds), update=self._update, salt=self._seed)
            case.seconds = min(case.seconds, seconds)
            asking = judge(case)
            self._converse(case, asking, job, began + seconds, show)
        except CannotMeasure as error:
            case.words.abstains.append(str(error))
            put_into_words(case)
        return report(case, time.monotonic() - began)

    def _converse(self, case: Case, asking: Asking, job: Job, until: float, show: Show) -> None:
        number, results = 0, cast(Results, None)  # with which a generator begins
        while True:
            try:
                asks = asking.send(results)
            except StopIteration:
                return
            for at, ask in enumerate(asks):
                write(self.folder / f"ask{number + at}", ask.message())
            results = []
            for ask in asks:
                show(f"run {number + 1}: {words_of(ask)}")
                results.append(self._result(number, ask, case.size, job, until))
                number += 1

    def _result(self, number: int, ask: Ask, size: int, job: Job, until: float) -> list[Seen]:
        limit = min(ask.seconds * 2 + _SLACK, max(until - time.monotonic(), 0.0))
        limit += time.monotonic()
        result = []
        for rank in range(1 if ask.alone else size):
            path = self.folder / f"run{number}.{rank}"
            if not wait_for(path, limit - time.monotonic(), lambda: not job.end):
                raise CannotMeasure(self._why(job, f"rank {rank} did not answer in time"))
            result.append(Seen.of(read(path)))
            if number:  # ranks look whether it is there; of the first one they read more
                os.truncate(path, 0)
        return result

    def _size(self, job: Job, seconds: float) -> int:
        """Return how many ranks the job has, once all have come."""
        limit = time.monotonic() + seconds
        first = self.folder / "hello.0"
        if not wait_for(first, seconds, lambda: not job.end):
            raise CannotMeasure(self._why(job, "rank 0 made no process group in time"))
        size: int = read(first)["size"]
        for rank in range(size):
            path = self.folder / f"hello.{rank}"
            if not wait_for(path, limit - time.monotonic(), lambda: not job.end):
                raise CannotMeasure(self._why(job, f"rank {rank} made no process group in time"))
            if read(path)["cuda"]:
                raise CannotMeasure(
                    f"rank {rank} uses CUDA before it makes a process group, and a process that "
                    "does cannot be forked: call init_process_group first"
                )
        return size

    def _why(self, job: Job, otherwise: str) -> str:
        """Return why no more can be asked, with the script's last words."""
        end = job.end
        path = self.folder / "out"
        lines = (
            path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        )
        last = next((one.strip() for one in reversed(lines) if one.strip()), "")
        if not end:
            return f"{otherwise}: a hang? `workbench stacks` shows where ranks wait"
        words = f"{end} before its audit was over"
        if not (self.folder / "hello.0").exists():
            words = f"{end}, and made no process group"
        return f"{words}: {last}" if last else words


def words_of(ask: Ask) -> str:
    """Return what a run is for, in words."""
    if ask.first or ask.lens:
        words = "the update as it is"
    elif ask.nudge:
        tiles = len({name for _, name in ask.nudge})
        words = f"{tiles} parameters nudged" if tiles > 1 else "one parameter nudged"
    else:
        words = f"{len(ask.scale)} losses alone"
    return f"{words}, on one rank" if ask.alone else words
