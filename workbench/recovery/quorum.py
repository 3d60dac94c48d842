"""Quorum: those that answer go on. A rank that is late for ``quorum_timeout`` is left out, and
comes back.

Late is a rank that has not come to the collective in which others wait, that is stopped, or whose
messages of one collective are on their way for as long, over slow links. The others give up the
iteration, form a group without it and deal its minibatch out among themselves. The late rank keeps
its process: when it finds that its group is gone, it asks to join, and receives parameters and
optimizer at the boundary of an iteration; one with slow links does once these are fast enough. A
rank that is cut off, or whose process ends, is treated as in ``wait``.

Source  torchft, https://docs.pytorch.org/torchft/: a quorum of the replicas that answer is computed
        at every step, and a replica that heals joins a later one. Here the members are asked again
        only where one is late: as long as all answer, the quorum is the group that there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.team import Failure, Team
from workbench.experiment.traits import Traits, traits_of, with_traits
from workbench.user_code import source

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

FROM_MEMORY = "any"
EVICTS_UNREACHABLE = True
LEAVES_OUT = True  # ranks that are late, which come back


def recover(failure: Failure) -> Team | None:
    """Return the ranks that answer; None where none does."""
    return failure.shrink() if failure.survivors else None


def check(exp: Experiment) -> None:
    """Raise SpecError unless replicas are equal, at the end of each round at least."""

    def fits(traits: Traits) -> bool:
        return traits.replicas in ("equal", "rounds") and traits.recovers == "any"

    if traits_of(exp.strategy).replicas not in ("equal", "rounds"):
        raise SpecError.at(
            "recovery",
            f"'quorum' asks which ranks have come to the mean that all take, and strategy "
            f"{source.shown(exp.strategy)} takes none: take recovery='wait' or 'shrink', or one of "
            f"the strategies {listed(with_traits(fits))}",
            exp.recovery,
        )
