"""Direct access to a group of this backend: spare ranks, messages that are read in place.

``isend`` and ``irecv`` are those of torch.distributed without the checks before them. Ranks are the
group's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from workbench.process_group.group import WorkbenchGroup
    from workbench.process_group.work import P2PWork


def group_of(group: dist.ProcessGroup | None = None) -> WorkbenchGroup:
    """Return a group as one of this backend, which it is; None: the default group."""
    return cast("WorkbenchGroup", dist.group.WORLD if group is None else group)


def isend(
    x: torch.Tensor, to: int, *, tag: int = 0, group: dist.ProcessGroup | None = None
) -> P2PWork:
    """Begin to send ``x``, and return the handle. It must stay as it is until that is done."""
    return cast("P2PWork", group_of(group).send([x], to, tag))


def irecv(
    into: torch.Tensor,
    frm: int,
    *,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    stays: bool = False,
) -> P2PWork:
    """Begin to receive into ``into``, and return the handle. ``stays``: a message that lies in
    shared memory is not copied; the handle has it as ``arrived`` until ``give_back``.
    """
    return cast("P2PWork", group_of(group).recv([into], frm, tag, stays=stays))
