"""Plans of calls: the algorithm and what the ranks must agree on, worked out once for calls that
are alike.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import torch

from workbench.choosing.costs import Costs
from workbench.common.errors import CollectiveError
from workbench.messaging.communicator import Communicator
from workbench.messaging.fingerprint import signature
from workbench.messaging.members import Members
from workbench.process_group.session import Session

MOST_PLANS = 1024  # of a group that are kept, those used last: sizes may be without end
OF_PARTS = ("all_gather", "gather", "scatter")  # a rank passes a part of the whole


class Plan(NamedTuple):
    """The plan of calls that are alike."""

    number: int  # the signature
    algorithm: str
    nbytes: int  # of the whole
    itemsize: int
    dtype: str
    root: int  # world rank; -1: there is none


class Plans:
    """The plans of one group's calls."""

    def __init__(
        self, session: Session, comm: Communicator, members: Members, costs: Costs, store: Any
    ) -> None:
        """Start without plans; in ``store``, the group's own, ranks share what "auto" takes."""
        self._session, self._comm, self._members = session, comm, members
        self._costs, self._store = costs, store
        self._plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def sizes(self) -> set[int]:
        """Return the numbers of elements for which a plan is kept."""
        return {key[2] for key in self._plans}

    def plan(
        self,
        operation: str,
        dtype: torch.dtype,
        elements: int,
        reduction: str = "",
        root: int = -1,
        agreed: int | None = None,
    ) -> Plan:
        """Return the plan of such a call.

        ``elements``: of this rank's argument; ``agreed``: the number that is the same on every
        rank, if that is another one. ``root``: the root's rank in the group. Raises CollectiveError
        if the wanted algorithm does not run on this number of ranks.
        """
        chosen = self._session.chosen(operation)
        key = operation, dtype, elements, reduction, root, agreed, chosen
        plan = self._plans.pop(key, None)  # and back: the last to go
        if plan is None:
            plan = self._make(*key)
            while len(self._plans) >= MOST_PLANS:
                self._plans.popitem(last=False)
        self._plans[key] = plan
        return plan

    def _make(
        self,
        operation: str,
        dtype: torch.dtype,
        elements: int,
        reduction: str,
        root: int,
        agreed: int | None,
        chosen: str,
    ) -> Plan:
        size, itemsize = self._comm.size, dtype.itemsize
        nbytes = elements * itemsize * (size if operation in OF_PARTS else 1)
        named = "" if operation == "barrier" else str(dtype).removeprefix("torch.")
        world = self._members.world[root] if root >= 0 else -1
        alike = elements if agreed is None else agreed
        number = signature(operation, dtype if named else None, alike, reduction, world)
        if chosen == "auto":
            chosen = self._choose(operation, nbytes)
        elif refusal := self._session.refusal(operation, chosen, size):
            raise CollectiveError(refusal)
        return Plan(number, chosen, nbytes, itemsize, named, world)

    def _choose(self, operation: str, nbytes: int) -> str:
        """Return what "auto" takes, the same on every rank: they go by the same costs."""
        # Here: it stands on what a group stands on.
        from workbench.choosing.together import choose_together

        return choose_together(
            operation,
            self._comm.size,
            nbytes,
            self._costs,
            store=self._store,
            rank=self._comm.rank,
            works=self._works,
        )

    def _works(self, rank: int) -> bool:
        """Return whether that rank of the group can do anything now, as far as is known here."""
        peer = self._members.peers[rank]
        return not (peer.deaf or peer.state() == "T" or self._members.watch.error)
