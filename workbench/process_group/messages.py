"""The point-to-point messages of one group: what torch passes, as a transfer of an engine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from workbench.common.errors import CollectiveError
from workbench.messaging.communicator import Communicator
from workbench.messaging.fingerprint import signature
from workbench.messaging.p2p import Transfer
from workbench.messaging.progress_engine import ProgressEngine
from workbench.messaging.receiving import RecvEngine
from workbench.messaging.sending import SendEngine
from workbench.process_group import profiling
from workbench.process_group.session import Session
from workbench.process_group.staging import in_mode_of
from workbench.process_group.work import P2PWork
from workbench.recording.lane import Lane
from workbench.transports.arrays import at_address

MOST = 256  # tensors that are remembered, of a group
_making = threading.RLock()  # of what threads share and is made with the first message


class Messages:
    """Sends and receives of one rank in one group."""

    def __init__(self, comm: Communicator, session: Session, group: str) -> None:
        self._comm, self._session, self._group = comm, session, group
        self._engines: dict[str, SendEngine | RecvEngine] = {}
        # By where a tensor lies and how it looks: the flat array of it, and its signature.
        self._known: dict[tuple[int, int, torch.dtype], tuple[Any, int]] = {}

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Any:
        """Post a message and return its handle."""
        self._check_peer("send", to, lowest=0)
        x = tensors[0].data
        host = x if x.is_cpu and x.is_contiguous() else x.cpu().contiguous()
        transfer = self._transfer(host, to, tag)
        transfer.place = self._session.lender.place(host)
        return self._post("send", "send", transfer, tensors)

    def recv(self, tensors: list[torch.Tensor], frm: int, tag: int, *, stays: bool = False) -> Any:
        """Post a receive, from any rank if ``frm`` is -1, and return its handle. ``stays``: see
        P2PWork.arrived.
        """
        self._check_peer("recv", frm, lowest=-1)
        x = tensors[0].data
        direct = x.is_cpu and x.is_contiguous()
        host = x if direct else torch.empty(x.shape, dtype=x.dtype)
        transfer = self._transfer(host, frm, tag)
        transfer.stays = stays and direct
        if not direct:
            transfer.after = in_mode_of(x, partial(_copy_back, x, host))
        return self._post("recv", "recvAnySource" if frm < 0 else "recv", transfer, tensors)

    def close(self) -> None:
        """Let what was posted leave, and fail what still waits then."""
        for engine in self._engines.values():
            engine.close()

    @property
    def lanes(self) -> list[Lane]:
        return [lane for engine in self._engines.values() for lane in engine.lanes]

    def _check_peer(self, kind: str, peer: int, lowest: int) -> None:
        if not lowest <= peer < self._comm.size:
            me = self._comm.members.world[self._comm.rank]
            raise CollectiveError(
                f"rank {me} cannot {kind} with rank {peer} of group {self._group}: it has "
                f"ranks 0 to {self._comm.size - 1}"
            )

    def _transfer(self, host: torch.Tensor, peer: int, tag: int) -> Transfer:
        recorder = self._session.recorder
        label = recorder.name(self._session.current_label())
        at = host.data_ptr(), host.numel(), host.dtype
        known = self._known.get(at)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            number = signature("p2p", host.dtype, host.numel())
            known = self._known[at] = at_address(*at), number
        transfer = Transfer(known[0], peer, tag, known[1], recorder.where, label)
        transfer.tensor = host
        return transfer

    def _post(
        self, kind: str, title: str, transfer: Transfer, result: list[torch.Tensor]
    ) -> P2PWork:
        engine = self._engines.get(kind) or self._new_engine(kind)
        if profiling.on():
            post: Callable[[], P2PWork] = partial(_submit, engine, transfer, result)
            handle: P2PWork = profiling.with_profiler(title, result, post, True)
            return handle
        return _submit(engine, transfer, result)

    def _new_engine(self, kind: str) -> SendEngine | RecvEngine:
        with _making:  # one, whichever thread has the first message
            if kind not in self._engines:
                lane = kind if self._group == "default" else f"{kind}:{self._group}"
                engine_class = SendEngine if kind == "send" else RecvEngine
                self._engines[kind] = engine_class(self._comm, lane, self._session.progress_engine)
            return self._engines[kind]


def progress_engine_of(session: Session) -> ProgressEngine:
    """Return what moves the messages of this process, made on first use."""
    with _making:
        if (
            session.progress_engine is None or session.progress_engine.pid != os.getpid()
        ):  # a fork has none
            session.progress_engine = ProgressEngine()
        progress: ProgressEngine = session.progress_engine
        return progress


def _copy_back(x: torch.Tensor, host: torch.Tensor, transfer: Transfer) -> None:
    if transfer.error is None:
        x.copy_(host)


def _submit(engine: Any, transfer: Transfer, result: list[torch.Tensor]) -> P2PWork:
    engine.progress_engine.submit(engine, transfer)
    return P2PWork(engine, transfer, result)  # made while the message is on its way
