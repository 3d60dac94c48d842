"""The members of a process group, their hosts, and the channels between them, opened on
first use.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from workbench.common.errors import PeerLost, WorkbenchError
from workbench.messaging.watchdog import PeerWait, Watch
from workbench.recording.group_members import group_words
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import SLICE, Control
from workbench.shared_memory.segments import Segment, cause
from workbench.transports.between_hosts import Group, open_channels, why_no_mpi
from workbench.transports.doorbell import Bells
from workbench.transports.peer_page import LEAVES, LEFT, PLANES, Peer, PeerPage, host_identity
from workbench.transports.shared_memory import SharedInbox, SharedOutbox

COLLECTIVE_PLANE, P2P_PLANE = range(len(PLANES))
JOINING = 5.0  # seconds: the longest between Gloo's rendezvous and a peer's look at our page


class Members:
    """One rank's view of a group. Ranks are group ranks; ``world[i]`` is member i's world rank."""

    def __init__(
        self,
        store: Store,
        rank: int,
        world_ranks: list[int] | None,
        size: int,
        *,
        timeout: timedelta,
        slot_bytes: int,
        recorder: Recorder,
        control: Control | None,
        bells: Bells,
        generation: int = 0,
    ) -> None:
        self.rank, self.size, self.slot_bytes, self.recorder = rank, size, slot_bytes, recorder
        self.page, self.bells = PeerPage.create(size), bells
        mine: dict[str, Any] = {
            "pid": os.getpid(),
            "fd": self.page.segment.fd,
            "bells": bells.segment.fd,
            "host": host_identity(),
            "rank": world_ranks[rank] if world_ranks else rank,
            "mpi": why_no_mpi(size),
        }
        store.set(f"page/{rank}", json.dumps(mine))
        result = [
            mine if i == rank else _checked_entry(store.get(f"page/{i}"), i) for i in range(size)
        ]
        self.world = [entry["rank"] for entry in result]
        self.peers = [self._meet(entry, mine) for entry in result]
        self._timeout = timeout.total_seconds()
        self.watch = Watch(
            rank,
            self.peers,
            self.page,
            int(timeout.total_seconds() * 1e9),
            control,
            generation,
        )
        self._outboxes: dict[tuple[int, int], Any] = {}
        self._inboxes: dict[tuple[int, int], Any] = {}
        self._far: Any = None
        far = [i for i, peer in enumerate(self.peers) if peer.page is None]
        if far:
            self._far = open_channels(
                Group(store, rank, self.world, far),
                [entry["mpi"] for entry in result],
                slot_bytes,
                self.page,
                bells,
                self._ended,
                lone=control is not None,
                seconds=self._timeout,
            )
            self.watch.tell_far = self._far.raise_alarm

    @property
    def between_hosts(self) -> str:
        """The carrier of chunks to other hosts: "MPI", "Gloo", or "" where all ranks share one."""
        return "" if self._far is None else self._far.NAME

    def _meet(self, entry: dict[str, Any], mine: dict[str, Any]) -> Peer:
        page = bells = None
        if entry is mine:
            page = self.page
        elif entry["host"] == mine["host"]:
            try:
                page = PeerPage(Segment.attach(entry["pid"], entry["fd"]), fresh=False)
                bells = Bells(Segment.attach(entry["pid"], entry["bells"]), fresh=False)
            except OSError as error:
                raise PeerLost(
                    f"rank {entry['rank']} (process {entry['pid']}) ended while rank "
                    f"{mine['rank']} joined its group",
                    entry["rank"],
                    peer=mine["rank"],
                    how="ended",
                    doing="init_process_group",
                    found_by=mine["rank"],
                ) from cause(error)
            page.sign(self.rank, self.size)
        return Peer(entry["rank"], entry["pid"], entry["host"], page, bells)

    def _ended(self, far: int, said_bye: bool) -> None:
        peer = self.peers[far]
        peer.said_bye = peer.said_bye or said_bye
        peer.lost = peer.lost or not peer.said_bye

    def outbox(self, to: int, plane: int = COLLECTIVE_PLANE) -> Any:
        """Return the channel to a group rank."""
        box = self._outboxes.get((plane, to))
        if box is None:
            peer = self.peers[to]
            if peer.page is None:
                assert self._far is not None
                box = self._far.outbox(to, plane)
            else:
                what = f"the mailbox {self.world[self.rank]} -> {self.world[to]}"
                try:
                    box = SharedOutbox(self.slot_bytes, what)
                except WorkbenchError as error:
                    raise self.watch.fail(error) from error  # the peer would wait for it
                box.bell = peer.bells.messages if plane == P2P_PLANE and peer.bells else None
                self.page.publish_mailbox(plane, to, self.size, box.segment.fd)
            self._outboxes[plane, to] = box
        return box

    def inbox(self, frm: int, plane: int, wait: Callable[[], PeerWait] | None) -> Any:
        """Return the channel from a group rank; None if it is absent and ``wait`` is None."""
        box = self._inboxes.get((plane, frm))
        if box is not None:
            return box
        peer = self.peers[frm]
        page = peer.page
        if page is None:
            assert self._far is not None
            box = self._far.inbox(frm, plane)
        else:
            fd = page.mailbox(plane, self.rank, self.size)
            peer_wait, pause, since = None, 20e-6, time.monotonic()
            while fd < 0:
                if wait is None:
                    return None
                peer_wait = peer_wait or wait()
                time.sleep(pause)
                # Late by a sixteenth of the wait: one that lasts, as a held run's, costs nothing.
                longest = max(2e-3, (time.monotonic() - since) / 16)
                pause = min(pause * 1.5, longest, SLICE)
                if pause >= 2e-3:
                    peer_wait.look()
                fd = page.mailbox(plane, self.rank, self.size)
            box = SharedInbox(self._attach(frm, fd, plane))
            box.bell = peer.bells.room if plane == P2P_PLANE and peer.bells else None
        self._inboxes[plane, frm] = box
        return box

    def _attach(self, frm: int, fd: int, plane: int) -> Segment:
        try:
            return Segment.attach(self.peers[frm].pid, fd)
        except OSError as error:
            doing = "opening its mailbox"
            if plane == P2P_PLANE and frm in self.watch.spare:
                raise self.watch.ended(frm, doing) from cause(error)
            raise self.watch.lost(frm, doing) from cause(error)

    @property
    def words(self) -> str:
        """Say which ranks they are: "group of ranks 1, 2, 3: group rank 0 is global rank 1"."""
        return group_words(self.world)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long a wait may last without progress, from now on."""
        self._timeout = timeout.total_seconds()
        self.watch.timeout_ns = self.watch.limit_ns = int(self._timeout * 1e9)

    def moved(self) -> int:
        """Return the payload bytes that this group's transports have copied for sending."""
        return sum(box.moved for box in self._outboxes.values())

    def close(self) -> None:
        """Let peers that live take what was posted to them, then give the descriptors back."""
        self.page.leaving = LEAVES
        deadline = time.monotonic() + self._timeout
        for (_, to), box in self._outboxes.items():
            while not (box.drained() or self._over(to) or time.monotonic() > deadline):
                time.sleep(1e-3)
        if self.watch.error is None:
            self.page.leaving = LEFT
        # A peer that is slow to join opens our page by its descriptor's number: keep it till then.
        deadline = time.monotonic() + min(self._timeout, JOINING)
        for i, peer in enumerate(self.peers):
            known = i == self.rank or peer.page is None
            while not (known or self.page.signed(i, self.size) or peer.deaf):
                if time.monotonic() > deadline:
                    break
                time.sleep(1e-3)
        self.give_up()

    def give_up(self) -> None:
        """Give the descriptors back at once, as where the group comes to nothing."""
        if self._far is not None:
            self._far.close()
            self._far = self.watch.tell_far = None
        for box in (*self._outboxes.values(), *self._inboxes.values()):
            if hasattr(box, "segment"):
                box.segment.close()
        for peer in self.peers:
            if peer.page is not None:
                peer.page.segment.close()
            if peer.bells is not None:
                peer.bells.segment.close()

    def _over(self, peer: int) -> bool:
        """Return whether waiting for that peer has become useless."""
        return bool(self.watch.error or self.page.alarm() or self.peers[peer].deaf)


def _checked_entry(text: bytes, rank: int) -> dict[str, Any]:
    """Check what a member has written at the group's meeting place, where others may write too."""
    try:
        facts = json.loads(text)
        numbers = {name: int(facts[name]) for name in ("pid", "fd", "bells", "rank")}
        return numbers | {name: str(facts[name]) for name in ("host", "mpi")}
    except (ValueError, TypeError, KeyError) as error:
        raise WorkbenchError(
            f"rank {rank} of this group has said {bytes(text[:80])!r} of itself, where its "
            "process, page and host are expected: is it of another version of the workbench, or "
            "does another job meet at the same address (MASTER_ADDR, MASTER_PORT)?"
        ) from error
