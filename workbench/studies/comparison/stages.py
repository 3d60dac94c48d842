"""A study whose comparison begins after something was measured: prepared, run, read as it goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from workbench.common import threads
from workbench.common.arguments import Seconds, checked
from workbench.common.errors import RunTimeout
from workbench.experiment.spec import Experiment
from workbench.runs.background_task import Ongoing
from workbench.studies.comparison.comparison import Comparison, compare

LOOK = 0.05  # seconds


class Staged(Ongoing):
    """A study in stages, in a thread of its own; ``comparison``: that of the stage under way.

    Subclasses have ``_stages``, which does the work and calls ``_compare``, and ``_look``.
    """

    PREPARING = "preparing"  # its state before the first comparison

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self.comparison: Comparison | None = None
        self.error: Exception | None = None
        self._folder = folder
        self._lock, self._stopping = threading.Lock(), False

    def _start(self, name: str) -> None:
        """Begin, as the last thing that a subclass does as it is made."""
        threads.start(self._work, name, stop=self.stop, launches=True)

    def _work(self) -> None:
        try:
            self._stages()
        except Exception as error:  # the caller that waits hears of it
            self.error = error
        self.ended.set()

    def _stages(self) -> None:
        """Do all of it."""
        raise NotImplementedError

    def _look(self) -> None:
        """Measure the runs that are over, each once: later its events may be gone."""
        raise NotImplementedError

    def _compare(self, experiments: Mapping[str, Experiment], seeds: int | None = None) -> None:
        """Run these, unless all was stopped, and look at them as they end."""
        with self._lock:
            if self._stopping:
                return
            self.comparison = compare(experiments, seeds=seeds, folder=self._folder)
        while not self.comparison.done:
            time.sleep(LOOK)
            self._look()
        self._look()

    def stop(self) -> None:
        """Stop what runs, after the iteration that is under way; start nothing more."""
        with self._lock:
            self._stopping = True
            if self.comparison is not None:
                self.comparison.stop()

    @checked
    def wait(self, timeout: Seconds | None = None, progress: bool | None = None) -> Self:
        """Block until all is over; return this object. Ctrl-C stops it.

        ``timeout`` in seconds: then RunTimeout, and the study goes on. ``progress``: a bar in the
        terminal (default: if there is one). Raises WorkbenchError if no run ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting():
            while not self.done:
                current = self.comparison
                if current is not None and not current.done:
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    current.wait(left, progress=progress)
                elif deadline is not None and time.monotonic() >= deadline:
                    raise RunTimeout(
                        f"timed out: the study is not over after {timeout} s ({self.state}); it "
                        "goes on"
                    )
                time.sleep(LOOK)
        if self.error is not None:
            raise self.error
        if self.comparison is not None:
            self.comparison.wait(progress=False)
        return self

    @property
    def state(self) -> str:
        """The state in a line."""
        if self.comparison is None:
            return "over" if self.done else self.PREPARING
        return self.comparison.words
