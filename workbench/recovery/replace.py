"""Replace: a fresh process takes the lost rank's place and receives parameters and optimizer from a
survivor.

It comes from the warm pool, which has torch imported already. It joins before the iteration that
was under way, with the same bytes as the others, and that iteration is done again.

Source  torchft, https://docs.pytorch.org/torchft/: a replica that heals receives a live
        checkpoint from one that is up to date.
"""

from __future__ import annotations

from workbench.experiment.team import Failure, Team

FROM_MEMORY = "replaced"


def recover(failure: Failure) -> Team | None:
    """Return the same team with new processes; None where no rank survived."""
    return failure.replace() if failure.survivors else None
