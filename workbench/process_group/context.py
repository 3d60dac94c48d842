"""The context of a group's calls: one rank's communicator, members, plans, and inner Gloo group.

It also has the way in which a rank joins them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

from workbench.choosing.costs import Costs, agree_on_costs
from workbench.common.topology import of_hosts, of_hosts_in_turn
from workbench.messaging.communicator import Communicator
from workbench.messaging.members import Members
from workbench.process_group.messages import progress_engine_of
from workbench.process_group.plans import Plans
from workbench.process_group.session import Session, session
from workbench.process_group.staging import Staging
from workbench.transports.joining import JoinWatch, WatchedStore
from workbench.transports.rendezvous import meet


@dataclass(eq=False)
class GroupContext:
    """One rank's end of a group, for the code that makes calls and runs them."""

    label: str
    session: Session
    inner: Any  # an InnerGloo; its methods are not in torch's type stubs
    members: Members
    comm: Communicator
    plans: Plans
    keys: Store  # that Gloo's group was made with
    me: int = field(init=False)  # world rank
    staging: Staging = field(init=False)

    def __post_init__(self) -> None:
        self.me = self.members.world[self.comm.rank]
        self.staging = Staging(self.comm.lane)

    def at_line(self, number: int, line: str) -> None:
        """Note the line of an attached job's program that makes the next call."""
        if self.session.attached:
            self.members.watch.line = line
            self.members.page.note_line(number, line)


class InnerGloo(ProcessGroupGloo):
    """The Gloo group inside. torch asks it, where it knows Gloo by name, on behalf of ours."""

    outer: Any  # a weak reference to ours

    def _set_default_timeout(self, timeout: timedelta) -> None:
        if (group := self.outer()) is not None:
            group.set_timeout(timeout)


def join(
    store: Store, rank: int, size: int, timeout: timedelta, world: list[int] | None, name: str
) -> GroupContext:
    """Return this rank's end of the group, once all of its ranks are there."""
    job_session = session()
    joining = max(timeout, timedelta(seconds=job_session.joining))
    ranks: Sequence[int] = world or range(size)
    meeting = meet(store, rank, ranks, group=name, timeout=joining, look=job_session.look)
    if world is None:
        job_session.recorder.belongs(meeting.job, meeting.attempt)
    keys = PrefixStore(meeting.name, store)  # of this attempt only
    watch = JoinWatch(
        ranks[rank], name, size, joining.total_seconds(), job_session.look, job_session.look_s
    )
    members = Members(
        watched := WatchedStore(PrefixStore("workbench", keys), watch),
        rank,
        world,
        size,
        timeout=timeout,
        slot_bytes=job_session.slot_bytes,
        recorder=job_session.recorder,
        control=job_session.control,
        bells=progress_engine_of(job_session).bells,
        generation=job_session.generation,
    )
    watch.peers = members.peers
    gloo_keys = WatchedStore(PrefixStore("inner", keys), watch)
    try:
        inner = watch.build(lambda: InnerGloo(gloo_keys, rank, size, timeout=joining))
        process_costs = job_session.costs or agree_on_costs(watched, rank)
    except BaseException:
        members.give_up()
        raise
    if joining > timeout:
        ProcessGroupGloo._set_default_timeout(inner, timeout)
    members.watch.look_s = job_session.look_s
    lane = "comm" if name == "default" else f"comm:{name}"
    comm = Communicator(
        members, lane, name, control=job_session.control, generation=job_session.generation
    )
    costs = _costs_of_group(process_costs, members, job_session.slot_bytes)
    comm.levels = costs.links.levels
    if not comm.levels:
        comm.in_turn = of_hosts_in_turn([peer.host for peer in members.peers])
    plans = Plans(job_session, comm, members, costs, PrefixStore("auto", keys))
    return GroupContext(name, job_session, inner, members, comm, plans, gloo_keys)


def _costs_of_group(process_costs: Costs, members: Members, slot_bytes: int) -> Costs:
    """Return the process's costs as they are between the members of this group."""
    links = process_costs.links.among(members.world)
    if not links.levels:  # no spec says which ranks share a host: where they are says it
        links = replace(links, levels=of_hosts([peer.host for peer in members.peers]))
    return process_costs.over(links).cut_into(slot_bytes)
