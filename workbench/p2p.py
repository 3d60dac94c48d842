"""Point-to-point messages of a process group: posted now, moved by whoever waits, matched by tag.

Two engines a group, one for sends and one for receives, each with a lane of its own. A transfer is
queued for its peer; whoever holds the engine's lock moves slots of any transfer that can move, so
that a large message to a slow peer never stops another one. A caller that waits drives the engine
itself (no thread hop); transfers that nobody waits for are driven by a thread that starts on first
need.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from workbench.arrays import NUMPY, TORCH, flat_array
from workbench.communicator import Communicator
from workbench.control import ATTENTION
from workbench.errors import CollectiveError, PeerLost, RunTimeout
from workbench.events import CODE, Where, now
from workbench.members import P2P_PLANE
from workbench.pacing import sleep_until
from workbench.signature import describe
from workbench.transports.mailbox import Header
from workbench.watch import Patience

GRACE = 0.5e-3  # seconds: a caller that waits at once drives its transfer without a thread
LINGER = 20e-3  # seconds without work after which the thread parks
_SEND, _RECV, _WAIT, _DETECT = (CODE[kind] for kind in ("send", "recv", "wait", "detect"))


class Transfer:
    """One message of this rank: what is left of it, and whether it is done."""

    def __init__(self, x: Any, peer: int, tag: int, signature: int, where: Where) -> None:
        self.x: Any = flat_array(x) if x is not None else None
        self.peer, self.tag, self.signature, self.where = peer, tag, signature, where
        self.number, self.slot, self.context = -1, 0, -1
        self.posted = now()
        self.done = threading.Event()
        self.error: Exception | None = None
        self.after: list[Any] = []  # called once it is done
        self.bells: set[Any] = set()  # rung then: of engines whose driver waits for this one too

    @property
    def nbytes(self) -> int:
        return int(self.x.nbytes) if self.x is not None else 0

    def finish(self, error: Exception | None = None) -> None:
        self.error = error
        after, self.after = self.after, []  # what is called may refer to us
        for call in after:
            call(self)
        self.done.set()
        for bell in self.bells:
            bell.ring()


class Engine:
    """Moves the transfers of one direction. Subclasses say how one step of progress is made."""

    kind: str
    bell_number: int

    def __init__(self, comm: Communicator, lane: str) -> None:
        self.comm, self.members = comm, comm.members
        self.lane = comm.recorder.lane(lane)
        self.world = comm.members.world
        self.lock, self.wake = threading.Lock(), threading.Event()  # the lock: who drives
        self.posted: deque[Transfer] = deque()  # by any thread; the driver takes them over
        self.pending: deque[Transfer] = deque()
        self.bell = comm.members.board.bells[self.bell_number]
        self.thread: threading.Thread | None = None
        self.over = comm.members.watch.over
        self.closed = False
        self._parked = True
        self._thread_drives = False
        self._sleepers = 0  # callers that wait for their turn to drive, or for their transfer
        self._news = threading.Condition()

    def submit(self, transfer: Transfer) -> None:
        """Queue it and move what can move at once; the rest is for who waits, or for the thread."""
        self.members.watch.check()
        self.posted.append(transfer)
        if self.lock.acquire(False):
            try:
                while self._step(0):
                    pass
            except Exception as error:
                self._fail(error)
            finally:
                self._let_go()
        else:
            self.bell.ring()
        if not transfer.done.is_set():
            self._ensure_thread()

    def wait(self, transfer: Transfer, seconds: float = math.inf) -> None:
        """Return when it is done; raise what went wrong, RunTimeout after ``seconds``."""
        if not self.drive([transfer], seconds):
            raise RunTimeout(f"{self.kind} {describe(transfer.signature)}: not done in {seconds} s")
        if transfer.error is not None:
            raise transfer.error

    def drive(self, until: Sequence[Transfer], seconds: float = math.inf) -> bool:
        """Move transfers until one of these is done; False: none was within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not any(transfer.done.is_set() for transfer in until):
            if time.monotonic() > deadline:
                self._ensure_thread()
                return False
            if self.lock.acquire(False):
                try:
                    self._drive(until, deadline)
                finally:
                    self._let_go()
                if self.busy():
                    self._ensure_thread()
            else:
                self._stand_by(until)
        return True

    def poll(self) -> None:
        """Move what can move at once, if nobody else is at it."""
        if self.lock.acquire(False):
            try:
                self._step(0)
            except Exception as error:
                self._fail(error)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self.lock.release()
        if self._sleepers:
            with self._news:
                self._news.notify_all()

    def _stand_by(self, until: Sequence[Transfer]) -> None:
        """Somebody else drives: the thread leaves it to us, another caller moves ours too."""
        with self._news:
            self._sleepers += 1
            if self._thread_drives:
                self.bell.ring()
            if self.lock.locked() and not any(transfer.done.is_set() for transfer in until):
                self._news.wait(0.02)
            self._sleepers -= 1

    def busy(self) -> bool:
        return bool(self.posted or self.pending)

    def accept(self, transfer: Transfer) -> None:
        """Take a posted transfer over. Called by the driver alone."""
        self.pending.append(transfer)

    def _ensure_thread(self) -> None:
        if self.thread is None:
            self.thread = threading.Thread(
                target=self._loop, daemon=True, name=f"workbench {self.kind}"
            )
            self.thread.start()
        if self._parked:
            self.wake.set()

    def _loop(self) -> None:
        """Drive what nobody waits for. Parked when idle for long; not woken for every message."""
        while not self.closed:
            self._parked = True
            if not self.busy():
                self.wake.wait()
            self.wake.clear()
            self._parked = False
            used = time.monotonic()
            while not self.closed and time.monotonic() - used < LINGER:
                time.sleep(GRACE)
                if self.busy():
                    if not self._sleepers and self.lock.acquire(timeout=LINGER):
                        self._thread_drives = True
                        try:
                            self._drive(())
                        finally:
                            self._thread_drives = False
                            self._let_go()
                    used = time.monotonic()

    def _drive(self, until: Sequence[Transfer], deadline: float = math.inf) -> None:
        """Move slots until one of these is done; the thread: until a caller wants to drive.

        Ends too when nothing is pending.
        """
        patience: Patience | None = None
        blocked = 0
        while self.busy() and not self.closed:
            if any(transfer.done.is_set() for transfer in until) or time.monotonic() > deadline:
                return
            if self._sleepers:
                if not until:
                    return
                with self._news:
                    self._news.notify_all()  # one of theirs may be done
            try:
                if self._step(blocked):
                    patience, blocked = None, 0
                    continue
                blocked = blocked or now()
                if until and now() - blocked < self.comm.slots.spin_ns:
                    continue  # awake: going to sleep and being woken costs more than most waits
                self.bell.listen()
                if self._step(blocked):
                    patience, blocked = None, 0
                    continue
                if not until and self._sleepers:
                    return
                self._look_waiting()
                self.bell.wait(min(0.05, max(0.0, deadline - time.monotonic())))
                patience = patience or Patience(self.members.watch, -1, self.lane, self._doing())
                awaited = {transfer.peer for transfer in self.pending}
                over = set(patience.look(awaited) if awaited else ())
                over -= self.over.keys() - awaited
                while over and self._step(0):  # what they had sent before
                    pass
                for peer in over:
                    self.abandon(peer, self.members.watch.ended(peer, self._doing()))
            except Exception as error:  # whoever waits for a transfer must hear of it
                self._fail(error)
        if not self.busy():
            self.lane.idle()

    def _step(self, blocked: int) -> bool:
        while self.posted:
            self.accept(self.posted.popleft())
        return self.progress(blocked)

    def _look_waiting(self) -> None:
        first = self.pending[0] if self.pending else None
        if first is not None:
            self.lane.status(
                _WAIT, peer=self.world[first.peer] if first.peer >= 0 else -1, op=first.number
            )

    def _doing(self) -> str:
        first = self.pending[0] if self.pending else None
        return f"{self.kind} {describe(first.signature)}" if first else self.kind

    def abandon(self, peer: int, error: PeerLost) -> None:
        """A spare peer has ended: so do the transfers to it or from it, and only they."""
        watch, rank, moment = self.members.watch, self.world[peer], now()
        self.over[peer] = error
        if rank not in watch.found and not watch.peers[peer].left:
            watch.found.add(rank)
            name = self.comm.recorder.name
            self.lane.context(group=name(self.comm.group), generation=self.comm.generation)
            self.lane.write(_DETECT, moment, moment, rank, name=name("lost"))
        for transfer in [transfer for transfer in self.pending if transfer.peer == peer]:
            self.pending.remove(transfer)
            self.end_of(transfer, error)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        """Finish a transfer whose spare peer has ended."""
        raise NotImplementedError

    def _fail(self, error: Exception) -> None:
        failed = [*self.pending, *self.posted]
        self.pending.clear()
        self.posted.clear()
        self.forget()
        for transfer in failed:
            transfer.finish(error)

    def forget(self) -> None:
        """Drop what else is queued (after a failure)."""

    def progress(self, blocked: int) -> bool:
        raise NotImplementedError

    def context(self, transfer: Transfer) -> None:
        if transfer.context < 0:
            name = self.comm.recorder.name
            transfer.context = self.lane.context(
                name("p2p"),
                0,
                name(self.comm.group),
                transfer.number,
                transfer.where,
                self.comm.generation,
            )
        else:
            self.lane.again(transfer.context)

    def close(self) -> None:
        """End the thread; what is still pending is not done."""
        self.closed = True
        self.wake.set()
        self.bell.ring()
        if self.thread is not None:
            self.thread.join(5.0)


class SendEngine(Engine):
    kind, bell_number = "send", 0

    def __init__(self, comm: Communicator, lane: str) -> None:
        super().__init__(comm, lane)
        self._numbers: dict[int, int] = {}

    def accept(self, transfer: Transfer) -> None:
        number = self._numbers.get(transfer.peer, 0)
        self._numbers[transfer.peer] = number + 1
        transfer.number = number
        if transfer.peer in self.over:
            transfer.finish()
        else:
            self.pending.append(transfer)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        transfer.finish()  # dropped: nobody misses it

    def close(self, grace: float = 5.0) -> None:
        """Let what was posted leave, for ``grace`` seconds, if somebody is there to take it."""
        deadline, peers = time.monotonic() + grace, self.members.peers
        while self.busy() and not self.members.watch.error and time.monotonic() < deadline:
            if all(peers[transfer.peer].deaf for transfer in (*self.pending, *self.posted)):
                break
            self._ensure_thread()
            time.sleep(1e-3)
        super().close()

    def progress(self, blocked: int) -> bool:
        moved, seen = False, set()
        for transfer in list(self.pending):
            if transfer.peer in seen:  # messages to one peer keep their order
                continue
            seen.add(transfer.peer)
            while self._put(transfer, blocked):
                moved, blocked = True, 0
                if transfer.done.is_set():
                    break
        return moved

    def _put(self, transfer: Transfer, blocked: int) -> bool:
        box = self.members.outbox(transfer.peer, P2P_PLANE)
        if not box.free.acquire(False):
            return False
        comm, x, to = self.comm, transfer.x, self.world[transfer.peer]
        self.context(transfer)
        if blocked:
            self.lane.write(_WAIT, blocked, now(), to, 0, 0, transfer.slot, -1, comm.slots.full)
        if comm.slots.attention[ATTENTION] and comm.slots.gate is not None:
            comm.slots.gate.pass_chunk(-1, 0, transfer.where.iteration)
        start = now()
        per = max(1, box.slot_bytes // x.itemsize)
        piece = x[transfer.slot * per : (transfer.slot + 1) * per]
        kernels = NUMPY if isinstance(x, np.ndarray) else TORCH
        if len(piece):
            kernels.copy(box.slot(x.dtype)[: len(piece)], piece)
        arrives, nbytes = 0, piece.nbytes
        if comm.slots.attention[ATTENTION] and comm.slots.pacer is not None:
            arrives = comm.slots.pacer.leave(to, nbytes, start, comm.members.watch.check)
        box.post(
            comm.generation,
            transfer.number,
            0,
            0,
            transfer.slot,
            nbytes,
            transfer.signature,
            arrives,
            transfer.nbytes,
            transfer.tag,
        )
        comm.slots.bytes_sent += nbytes
        self.lane.write(_SEND, start, now(), to, 0, 0, transfer.slot, nbytes)
        transfer.slot += 1
        if transfer.slot * per >= len(x):
            self.pending.remove(transfer)
            transfer.finish()
        return True


class RecvEngine(Engine):
    kind, bell_number = "recv", 1

    def __init__(self, comm: Communicator, lane: str) -> None:
        super().__init__(comm, lane)
        self._arriving: dict[int, Transfer] = {}  # by peer: the message whose slots are coming in
        self._unexpected: dict[int, deque[Transfer]] = {}

    def forget(self) -> None:
        self._arriving.clear()

    def accept(self, transfer: Transfer) -> None:
        """``transfer.peer`` -1: from anyone. A message that came too early is matched first."""
        for peer, waiting in self._unexpected.items():
            for early in waiting:
                if transfer.peer in (-1, peer) and early.tag == transfer.tag:
                    waiting.remove(early)
                    self._adopt(early, transfer, peer)
                    return
        if transfer.peer in self.over:
            transfer.finish(self.over[transfer.peer])
        else:
            self.pending.append(transfer)

    def abandon(self, peer: int, error: PeerLost) -> None:
        self._arriving.pop(peer, None)
        whole = [early for early in self._unexpected.pop(peer, ()) if early.done.is_set()]
        self._unexpected[peer] = deque(whole)
        super().abandon(peer, error)
        if len(self.over) == self.comm.size - 1:  # nobody is left who could send
            for transfer in [transfer for transfer in self.pending if transfer.peer < 0]:
                self.pending.remove(transfer)
                transfer.finish(error)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        transfer.finish(error)

    def _adopt(self, early: Transfer, transfer: Transfer, peer: int) -> None:
        transfer.peer, transfer.number, transfer.slot = peer, early.number, early.slot
        self.pending.append(transfer)
        self._match(transfer, early.nbytes, early.signature, peer)
        if isinstance(transfer.x, np.ndarray):
            np.copyto(transfer.x.view(np.uint8), early.x)
        else:
            transfer.x.view(torch.uint8).copy_(torch.from_numpy(early.x))
        if early.done.is_set():
            self.pending.remove(transfer)
            transfer.finish()
        else:  # the rest of its slots go straight to their place
            self._arriving[peer] = transfer

    def progress(self, blocked: int) -> bool:
        moved = False
        wanted = {transfer.peer for transfer in self.pending}
        peers = range(self.comm.size) if -1 in wanted else wanted
        for peer in list(peers):
            if peer == self.comm.rank or peer in self.over:
                continue
            try:
                box = self.members.inbox(peer, P2P_PLANE, None)
            except PeerLost as error:
                if peer not in self.members.watch.spare:
                    raise
                self.abandon(peer, error)
                continue
            while box is not None and self.pending and box.ready.acquire(False):
                self._take(box, peer, 0 if moved else blocked)
                moved = True
        return moved

    def _take(self, box: Any, peer: int, blocked: int) -> None:
        comm, header = self.comm, box.header()
        transfer = self._arriving.get(peer) or self._begin(header, peer)
        self.context(transfer)
        if header.arrives > now():
            blocked = blocked or now()
            sleep_until(header.arrives, comm.members.watch.check)
        if blocked:
            self.lane.write(
                _WAIT,
                max(blocked, transfer.posted),
                now(),
                self.world[peer],
                header.step,
                header.chunk,
                header.slot,
            )
        start, x = now(), transfer.x
        if header.nbytes:
            done = header.slot * (box.slot_bytes // x.itemsize)
            kernels = NUMPY if isinstance(x, np.ndarray) else TORCH
            count = header.nbytes // x.itemsize
            kernels.copy(x[done : done + count], box.slot(x.dtype)[:count])
        box.release()
        self.lane.write(
            _RECV,
            start,
            now(),
            self.world[peer],
            header.step,
            header.chunk,
            header.slot,
            header.nbytes,
        )
        transfer.slot += 1
        per = box.slot_bytes // x.itemsize * x.itemsize
        if (header.slot + 1) * per >= header.total:
            self._arriving.pop(peer, None)
            if transfer in self.pending:
                self.pending.remove(transfer)
            transfer.finish()

    def _begin(self, header: Header, peer: int) -> Transfer:
        """The receive that this message is for; a place of its own if none was posted yet."""
        for transfer in self.pending:
            if (
                transfer.peer in (-1, peer)
                and transfer.tag == header.tag
                and transfer not in self._arriving.values()
            ):
                transfer.peer = peer
                self._match(transfer, header.total, header.signature, peer)
                break
        else:
            transfer = Transfer(
                np.zeros(header.total, np.uint8), peer, header.tag, header.signature, Where()
            )
            self._unexpected.setdefault(peer, deque()).append(transfer)
        transfer.number = header.op
        self._arriving[peer] = transfer
        return transfer

    def _match(self, transfer: Transfer, total: int, signature: int, peer: int) -> None:
        if transfer.nbytes != total or transfer.signature >> 48 & 31 != signature >> 48 & 31:
            me = self.world[self.comm.rank]
            raise self.members.watch.fail(
                CollectiveError(
                    f"rank {self.world[peer]} sent {describe(signature)} ({total:,} bytes, tag "
                    f"{transfer.tag}), rank {me} receives {describe(transfer.signature)} "
                    f"({transfer.nbytes:,} bytes): a send and its recv must have the same shape "
                    "and dtype"
                )
            )
