"""A data source that goes down because the experiment asks for it (``wb.SourceDown``).

It is the same for all ranks: the first that begins the iteration has the driver take it down, and
until the driver has it back no rank can read. In the iterations before, reading takes longer.
"""

from __future__ import annotations

import time

from workbench.experiment.faults import SourceDown
from workbench.experiment.spec import Experiment
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import SOURCE, Control

SLOWEST_S = 0.2  # the delay of reading in the last iteration before the source is down


class Outage:
    """The source of one rank's samples, as the experiment disturbs it."""

    def __init__(self, exp: Experiment, recorder: Recorder, control: Control) -> None:
        self._recorder, self._words = recorder, control.words
        self._faults = [one for one in exp.faults if isinstance(one, SourceDown)]
        self._delayed = -1  # the newest iteration that was delayed

    def look(self) -> None:
        """Take longer where the source is about to go down. Raises ConnectionError while it is."""
        if not self._faults:
            return
        if self._words[SOURCE]:
            raise ConnectionError("the data source does not answer, as the experiment asks for it")
        iteration = self._recorder.where.iteration
        if iteration != self._delayed and (seconds := delay(self._faults, iteration)):
            self._delayed = iteration
            time.sleep(seconds)


def delay(faults: list[SourceDown], iteration: int) -> float:
    """Return for how many seconds longer samples are read in this iteration."""
    left = (fault.at_iteration - iteration for fault in faults)
    return max(
        (
            SLOWEST_S / 2 ** (before - 1)
            for before, fault in zip(left, faults, strict=True)
            if 1 <= before <= fault.slow_iterations and iteration >= 0
        ),
        default=0.0,
    )
