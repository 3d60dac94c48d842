"""Shrink: the survivors form a smaller group and try the iteration again with what they have.

The minibatch is dealt out among those that are left, so its mean gradient is still that of all its
samples, and the losses are those of sequential training.

Source  Elastic Horovod, https://horovod.readthedocs.io/en/stable/elastic_include.html: surviving
        workers go on from the state in their memory.
"""

from __future__ import annotations

from workbench.experiment.team import Failure, Team

FROM_MEMORY = "any"


def recover(failure: Failure) -> Team | None:
    """Return the survivors; None where no rank survived."""
    return failure.shrink() if failure.survivors else None
