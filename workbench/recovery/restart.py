"""Restart: all ranks go back to the last checkpoint, lost ones in a new process.

What was trained since then is done again, to the bit. It fits every strategy, as none of the
survivors need have what was lost.

Source  Elastic launch, https://docs.pytorch.org/docs/stable/elastic/run.html: on a failure all
        workers are started again, and load their last checkpoint. Here
        survivors keep their process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.team import Failure, Team

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

MOST = 100  # failures of one run: with more it would repeat the same iterations forever


def recover(failure: Failure) -> Team | None:
    """Return all ranks, to go on from the last checkpoint; None after too many failures."""
    return failure.restart() if failure.number < MOST else None


def check(exp: Experiment) -> None:
    """Raise SpecError for an experiment that writes no checkpoints."""
    if exp.checkpoint is None:
        raise SpecError.at(
            "recovery",
            "'restart' goes back to the last checkpoint, and this experiment writes none: add "
            'checkpoint=wb.Checkpoint(folder="checkpoints", every=20)',
            exp.recovery,
        )
