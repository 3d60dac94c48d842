"""What a collective algorithm is written against: rank, size, send, recv, exchange, relay, span, mark.

A tensor travels in slots of at most ``slot_bytes``. A row is recorded around each call that moves
bytes: ``send`` from the start of writing until the last byte is in the slot (paced: has left the link),
``recv`` from the first byte being there until it is copied or added, ``wait`` for being blocked before.
The hot path keeps to local names and does nothing twice; where a rank is held, slowed or paced, one
word in shared memory says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from workbench.control import ATTENTION, HELD, Control, Gate
from workbench.errors import CollectiveError
from workbench.events import NOWHERE, RECV, SEND, WAIT, Where, now
from workbench.members import COLLECTIVE_PLANE, Members
from workbench.pacing import Pacer, sleep_until
from workbench.signature import describe
from workbench.transports.mailbox import SLOTS, Header, checksum
from workbench.watch import Patience, disagreement

SUM, PRODUCT, MIN, MAX = "SUM", "PRODUCT", "MIN", "MAX"
SPIN_NS = (
    int(os.environ.get("WORKBENCH_SPIN_US", "100")) * 1000
)  # how long a wait stays awake where every rank has a core
(
    F_GENERATION,
    F_OP,
    F_STEP,
    F_CHUNK,
    F_SLOT,
    F_NBYTES,
    F_SIGNATURE,
    F_ARRIVES,
    F_TOTAL,
    F_TAG,
    F_CHECKSUM,
) = range(11)


class _Kernels(NamedTuple):
    """How to copy and to combine flat arrays of one library."""

    copy: Any
    reduce: dict[str, Any]


def _torch_kernel(function: Any) -> Any:
    return lambda a, b, out: function(a, b, out=out)


_NUMPY = _Kernels(np.copyto, {SUM: np.add, PRODUCT: np.multiply, MIN: np.minimum, MAX: np.maximum})
_TORCH = _Kernels(
    lambda into, x: into.copy_(x),
    {
        SUM: _torch_kernel(torch.add),
        PRODUCT: _torch_kernel(torch.mul),
        MIN: _torch_kernel(torch.minimum),
        MAX: _torch_kernel(torch.maximum),
    },
)
# numpy adds these too, but element by element (float16) or not at all (bfloat16).
_LEFT_TO_TORCH = {torch.float16, torch.bfloat16, torch.bool}


def flat_array(x: Any) -> Any:
    """``x`` as a flat array that shares its memory: numpy where numpy is fast, else torch. It must be contiguous."""
    if isinstance(x, np.ndarray):
        return x if x.ndim == 1 else x.reshape(-1)
    x = x.detach()
    if not x.is_contiguous():
        raise CollectiveError(
            f"a tensor of shape {tuple(x.shape)} and strides {x.stride()} is not contiguous: pass x.contiguous()"
        )
    flat = x.view(-1)
    return flat if x.dtype in _LEFT_TO_TORCH else flat.numpy()


class Communicator:
    """One rank's end of a group. Peers are group ranks; the events name world ranks."""

    def __init__(
        self,
        members: Members,
        lane: str,
        group: str,
        *,
        control: Control | None,
        generation: int = 0,
    ) -> None:
        self.rank, self.size, self.group = members.rank, members.size, group
        self.members, self._watch, self._world = members, members.watch, members.world
        self.recorder, self.lane = members.recorder, members.recorder.lane(lane)
        self._write = self.lane.write
        self.generation = generation
        me = self._world[self.rank]
        self._attention = (
            control.words if control is not None else memoryview(bytearray(64)).cast("q")
        )
        self._gate = Gate(control, me) if control is not None else None
        self._pacer = Pacer(control, me) if control is not None else None
        self.verify = os.environ.get("WORKBENCH_VERIFY", "0") == "1"
        self._out: dict[int, Any] = {}
        self._in: dict[int, Any] = {}
        self.bytes_sent = 0
        # Staying awake helps only who has a core of his own; on a thread beside computing it would take the
        # interpreter's lock from the computing.
        local = sum(peer.board is not None for peer in members.peers)
        self._spin_ns = SPIN_NS if local <= (os.cpu_count() or 1) else 0
        self.inline = True
        self._op, self._signature, self._doing, self._where = -1, 0, "", NOWHERE
        self._step, self._chunk, self._phase, self._next_step = -1, -1, 0, 0
        self._fused, self._full = self.recorder.name("fused"), self.recorder.name("slots full")
        self._group_number = self.recorder.name(group)

    # -- what a collective begins and ends with --

    def begin(
        self,
        collective: str,
        algorithm: str,
        op: int,
        number: int,
        where: Where,
        shape: tuple[int, ...],
        dtype: str,
    ) -> None:
        """From here on rows belong to this collective. ``number``: its signature."""
        name = self.recorder.name
        self._op, self._signature, self._doing, self._where = (
            op,
            number,
            f"{collective} {op}",
            where,
        )
        self._next_step = 0
        self._watch.check()
        self.members.board.begin(op, number)
        collective_number, algorithm_number = name(collective), name(algorithm)
        self.lane.context(
            collective_number, algorithm_number, self._group_number, op, where, self.generation
        )
        self.lane.status(
            5,
            group=self._group_number,
            collective=collective_number,
            algorithm=algorithm_number,
            op=op,
            dtype=name(dtype),
            shape=shape,
        )

    def end(self, start: int, nbytes: int, label: str = "") -> None:
        """The outer row of the collective that ends here."""
        self._write(5, start, now(), nbytes=nbytes, name=self.recorder.name(label) if label else 0)
        self.lane.idle()

    @contextmanager
    def span(
        self, phase: str = "", *, step: int | None = None, chunk: int | None = None
    ) -> Iterator[None]:
        """Name what happens inside: the algorithm's phase, its step, which chunk of the tensor."""
        before = self._phase, self._step, self._chunk
        self._phase = self.recorder.name(phase) if phase else self._phase
        self._step = before[1] if step is None else step
        self._chunk = before[2] if chunk is None else chunk
        try:
            yield
        finally:
            self._phase, self._step, self._chunk = before

    def mark(self, name: str, value: float = float("nan")) -> None:
        """Put an instant with a name (and a number) into the record."""
        moment = now()
        self._write(
            21,
            moment,
            moment,
            step=self._step,
            chunk=self._chunk,
            name=self.recorder.name(name),
            value=value,
        )

    # -- cutting --

    def split(self, x_N: Any) -> list[Any]:
        """``size`` views of flat ``x_N``; the first N mod size have one element more."""
        whole, extra = divmod(len(x_N), self.size)
        ends = [i * whole + min(i, extra) for i in range(self.size + 1)]
        return [x_N[a:b] for a, b in zip(ends, ends[1:], strict=False)]

    def slices(self, chunks: Sequence[Any], itemsize: int) -> Iterator[tuple[int, list[Any]]]:
        """Walk all chunks together in pieces that stay in the core's cache: (first slot, a view of each chunk).

        At most half the slots of a link are in flight, so that a ring of links can never be full.
        """
        longest = max(len(chunk) for chunk in chunks)
        slots, per = self._cut(longest, itemsize)
        stride = SLOTS // 2
        for first in range(0, max(slots, 1), stride):
            yield first, [chunk[first * per : (first + stride) * per] for chunk in chunks]

    def _cut(self, elements: int, itemsize: int) -> tuple[int, int]:
        """How many slots an array of so many elements takes, and elements a slot: even pieces, not a last crumb."""
        most = max(1, self.members.slot_bytes // itemsize)
        slots = max(1, -(-elements // most))
        return slots, -(-elements // slots)

    def _pieces(self, x: Any, first: int, itemsize: int) -> list[Any]:
        """The slots of ``x``. Nothing is still one message, unless it is the tail of something (``first`` > 0)."""
        elements = len(x)
        if elements == 0:
            return [x] if first == 0 else []
        slots, per = self._cut(elements, itemsize)
        return [x] if slots == 1 else [x[i * per : (i + 1) * per] for i in range(slots)]

    # -- the primitives --

    def send(
        self,
        x: Any,
        *,
        to: int,
        step: int | None = None,
        chunk: int | None = None,
        phase: str = "",
        slot: int = 0,
    ) -> None:
        """Send flat or contiguous ``x``. May return before it is received. Raises PeerLost, CollectiveError, RunTimeout."""
        x = flat_array(x)
        step, chunk, number = self._place(step, chunk, phase)
        for i, piece in enumerate(self._pieces(x, slot, x.itemsize), slot):
            self._put(piece, to, step, chunk, i, number)

    def recv(
        self, into: Any, *, frm: int | None, reduce: str | None = None,
        step: int | None = None, chunk: int | None = None, phase: str = "", slot: int = 0,
    ) -> int:  # fmt: skip
        """Receive into contiguous ``into``, or combine with it (``reduce="SUM"``). ``frm=None``: from anyone. Returns the sender."""
        into = flat_array(into)
        step, chunk, number = self._place(step, chunk, phase)
        frm = self._anyone() if frm is None else frm
        for i, piece in enumerate(self._pieces(into, slot, into.itemsize), slot):
            self._take(piece, frm, reduce, step, chunk, i, number)
        return frm

    def exchange(
        self, x: Any, *, to: int, into: Any, frm: int, reduce: str | None = None,
        step: int | None = None, chunk: int | None = None, into_chunk: int = -1, phase: str = "", slot: int = 0,
    ) -> None:  # fmt: skip
        """Send ``x`` and receive ``into`` at the same time, slot by slot, so that two full mailboxes cannot block each other."""
        x, into = flat_array(x), flat_array(into)
        step, chunk, number = self._place(step, chunk, phase)
        outgoing, incoming = (
            self._pieces(x, slot, x.itemsize),
            self._pieces(into, slot, into.itemsize),
        )
        for i in range(max(len(outgoing), len(incoming))):
            if i < len(outgoing):
                self._put(outgoing[i], to, step, chunk, slot + i, number)
            if i < len(incoming):
                self._take(incoming[i], frm, reduce, step, into_chunk, slot + i, number)

    def relay(
        self, mine: Any, *, frm: int, to: int, reduce: str | None, keep: bool = True,
        step: int, chunk: int, phase: str = "", next_phase: str = "", slot: int = 0,
    ) -> None:  # fmt: skip
        """Receive ``mine``'s counterpart (at ``step``), combine it with ``mine``, and pass the outcome on (at ``step`` + 1).

        ``reduce=None`` replaces ``mine`` and passes it on. ``keep=False`` leaves ``mine`` alone: the sum
        goes from slot to slot in one pass over memory (NCCL calls this recvReduceSend).
        """
        mine = flat_array(mine)
        name = self.recorder.name
        phases = name(phase), name(next_phase or phase)
        for i, piece in enumerate(self._pieces(mine, slot, mine.itemsize), slot):
            self._pass_on(piece, frm, to, reduce, keep, step, chunk, i, phases)

    def combine(
        self, into: Any, other: Any, reduce: str, *, chunk: int = -1, slot: int = 0
    ) -> None:
        """``into`` = ``into`` combined with this rank's own ``other``, both flat; nothing travels."""
        into = flat_array(into)
        kernels = _NUMPY if isinstance(into, np.ndarray) else _TORCH
        start = now()
        kernels.reduce[reduce](into, flat_array(other), out=into)
        self._write(8, start, now(), self._world[self.rank], self._step, chunk, slot, into.nbytes)

    # -- one slot --

    def _place(self, step: int | None, chunk: int | None, phase: str) -> tuple[int, int, int]:
        """Where a call stands in its algorithm: as it says, as the span around it says, or counted."""
        if step is None:
            step = self._step
            if step < 0:
                step, self._next_step = self._next_step, self._next_step + 1
        return (
            step,
            self._chunk if chunk is None else chunk,
            self.recorder.name(phase) if phase else self._phase,
        )

    def _put(self, x: Any, to: int, step: int, chunk: int, slot: int, phase: int) -> None:
        box = self._claim(to, step, chunk)
        start = now()
        buffer = box.slot(x.dtype)[: len(x)]
        (_NUMPY if isinstance(x, np.ndarray) else _TORCH).copy(buffer, x)
        self._post(box, buffer, to, step, chunk, slot, phase, start)

    def _take(
        self, into: Any, frm: int, reduce: str | None, step: int, chunk: int, slot: int, phase: int
    ) -> None:
        box, fields = self._arrived(frm, step, chunk, into.nbytes, slot, phase)
        start = now()
        kernels = _NUMPY if isinstance(into, np.ndarray) else _TORCH
        buffer = box.slot(into.dtype)[: len(into)]
        if fields[F_CHECKSUM]:
            self._verify(Header(*fields), buffer, frm)
        if reduce is None:
            kernels.copy(into, buffer)
        else:
            kernels.reduce[reduce](into, buffer, out=into)
        box.release()
        self._write(
            RECV, start, now(), self._world[frm], fields[F_STEP], fields[F_CHUNK], fields[F_SLOT], fields[F_NBYTES],
            0 if reduce is None else self._fused, phase,
        )  # fmt: skip

    def _pass_on(
        self,
        mine: Any,
        frm: int,
        to: int,
        reduce: str | None,
        keep: bool,
        step: int,
        chunk: int,
        slot: int,
        phases: tuple[int, int],
    ) -> None:
        arrived, fields = self._arrived(frm, step, chunk, mine.nbytes, slot, phases[0])
        leaving = self._claim(to, step + 1, chunk)
        start = now()
        kernels = _NUMPY if isinstance(mine, np.ndarray) else _TORCH
        n, dtype = len(mine), mine.dtype
        incoming, outgoing = arrived.slot(dtype)[:n], leaving.slot(dtype)[:n]
        if fields[F_CHECKSUM]:
            self._verify(Header(*fields), incoming, frm)
        if reduce is None:
            kernels.copy(mine, incoming)
            kernels.copy(outgoing, mine)
        elif keep:
            kernels.reduce[reduce](incoming, mine, out=mine)
            kernels.copy(outgoing, mine)
        else:
            kernels.reduce[reduce](incoming, mine, out=outgoing)
        arrived.release()
        self._write(
            RECV, start, now(), self._world[frm], fields[F_STEP], fields[F_CHUNK], fields[F_SLOT], fields[F_NBYTES],
            0 if reduce is None else self._fused, phases[0],
        )  # fmt: skip
        self._post(leaving, outgoing, to, step + 1, chunk, slot, phases[1], start)

    def _claim(self, to: int, step: int, chunk: int) -> Any:
        """A free slot towards ``to``: waits for one, and for the user who may hold the ranks here."""
        box = self._out.get(to)
        if box is None:
            box = self._out[to] = self.members.outbox(to, COLLECTIVE_PLANE)
        if not box.free.acquire(False):
            self._wait(box.free, to, step, chunk, -1, self._full, self._phase)
        if self._attention[ATTENTION] and self._gate is not None:
            self._hold(to, step, chunk)
        return box

    def _post(
        self,
        box: Any,
        payload: Any,
        to: int,
        step: int,
        chunk: int,
        slot: int,
        phase: int,
        start: int,
    ) -> None:
        nbytes = payload.nbytes
        arrives = 0
        if self._attention[ATTENTION] and self._pacer is not None:
            arrives = self._pacer.leave(self._world[to], nbytes, start, self._watch.check)
        total = checksum(_bytes_of(payload)) | 1 if self.verify else 0
        box.post(
            self.generation,
            self._op,
            step,
            chunk,
            slot,
            nbytes,
            self._signature,
            arrives,
            nbytes,
            0,
            total,
        )
        self.bytes_sent += nbytes
        self._write(SEND, start, now(), self._world[to], step, chunk, slot, nbytes, 0, phase)

    def _arrived(
        self, frm: int, step: int, chunk: int, nbytes: int, slot: int, phase: int
    ) -> tuple[Any, tuple[int, ...]]:
        """The oldest slot from ``frm``, once it is there and is what we expect; with its header's fields."""
        box = self._in.get(frm)
        if box is None:
            box = self._in[frm] = self.members.inbox(
                frm, COLLECTIVE_PLANE, lambda: Patience(self._watch, frm, self.lane, self._doing)
            )
        if not box.ready.acquire(False):
            self._wait(box.ready, frm, step, chunk, slot, 0, phase)
        fields: tuple[int, ...] = box.fields()
        if fields[F_ARRIVES] and fields[F_ARRIVES] > now():
            start = now()
            sleep_until(fields[F_ARRIVES], self._watch.check)
            self._write(
                WAIT, start, now(), self._world[frm], *fields[F_STEP : F_SLOT + 1], phase=phase
            )
        if (
            fields[F_OP] != self._op
            or fields[F_SIGNATURE] != self._signature
            or fields[F_NBYTES] != nbytes
            or fields[F_GENERATION] != self.generation
        ):
            raise self._watch.fail(self._disagree(frm, Header(*fields), nbytes))
        return box, fields

    def _wait(
        self, semaphore: Any, peer: int, step: int, chunk: int, slot: int, name: int, phase: int
    ) -> None:
        """Be blocked, and record it: first awake, since going to sleep and being woken costs more than most waits."""
        start = now()
        acquire = semaphore.acquire
        awake_until = start + (self._spin_ns if self.inline else 0)
        while now() < awake_until:
            if acquire(False):
                break
        else:
            self.lane.status(
                WAIT,
                peer=self._world[peer],
                group=self._group_number,
                op=self._op,
                step=step,
                chunk=chunk,
            )
            self._watch.wait(semaphore, peer, self.lane, f"{self._doing}, step {step}")
        self._write(WAIT, start, now(), self._world[peer], step, chunk, slot, -1, name, phase)

    def _hold(self, to: int, step: int, chunk: int) -> None:
        if self._attention[HELD] and self._gate is not None:
            self._gate.pass_chunk(self._op, step, self._where.iteration)
            self._watch.check()

    def _anyone(self) -> int:
        """A peer that has sent something, waiting for one if there is none."""
        patience: Patience | None = None
        while True:
            for peer in range(self.size):
                if peer == self.rank:
                    continue
                box = self._in.get(peer) or self.members.inbox(peer, COLLECTIVE_PLANE, None)
                if box is None:
                    continue
                self._in[peer] = box
                if box.ready.acquire(False):
                    box.ready.release()
                    return peer
            patience = patience or Patience(self._watch, -1, self.lane, self._doing)
            patience.look()
            sleep_until(now() + 100_000, self._watch.check)

    def _disagree(self, frm: int, header: Header, nbytes: int) -> CollectiveError:
        me, peer = self._world[self.rank], self._world[frm]
        if header.generation != self.generation:
            return CollectiveError(
                f"rank {peer} sent a message of generation {header.generation} to rank {me}, which is in generation {self.generation}"
            )
        if header.op != self._op:
            return CollectiveError(
                f"ranks disagree about the order of calls: rank {me} is in collective {self._op} ({describe(self._signature)}), "
                f"rank {peer} in collective {header.op} ({describe(header.signature)})"
            )
        if header.signature != self._signature:
            return disagreement(
                self._op, (me, describe(self._signature)), (peer, describe(header.signature))
            )
        return CollectiveError(
            f"rank {me} expected {nbytes:,} bytes from rank {peer} in {self._doing}, and got {header.nbytes:,} "
            f"(rank {peer}'s step {header.step}, chunk {header.chunk}): the ranks' schedules differ"
        )

    def _verify(self, header: Header, payload: Any, frm: int) -> None:
        found = checksum(_bytes_of(payload)) | 1
        if found != header.checksum:
            raise self._watch.fail(
                CollectiveError(
                    f"rank {self._world[self.rank]}: step {header.step}, chunk {header.chunk}, slot {header.slot} from rank "
                    f"{self._world[frm]} arrived damaged in {self._doing}: its checksum is {found:#x}, the sender's was {header.checksum:#x}"
                )
            )


def _bytes_of(payload: Any) -> memoryview:
    if isinstance(payload, np.ndarray):
        return memoryview(payload).cast("B")
    return memoryview(payload.view(torch.uint8).numpy()).cast("B")
