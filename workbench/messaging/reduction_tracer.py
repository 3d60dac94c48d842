"""Traces the additions of a user's own algorithm where torch executes them.

Our algorithms combine inside the communicator, which writes a row. A user's plain one receives into
a tensor of its own and adds that: ``chunk.add_(arriving)``. This module observes torch's operations
of the one thread, and writes the ``reduce`` row around such an addition.

The rows say what a rank holds of each chunk: it sends what it holds, and what it receives replaces
that, unless it is added. If the code does otherwise (it passes on what it received and adds it
elsewhere, say), the rows would be wrong. Then the collective is ``untold``: its bytes and times are
right, but the contributions in its chunks are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.recording.events import REDUCE, now

_ADDS = {f"aten::{name}{end}" for name in ("add", "mul", "maximum", "minimum") for end in ("", "_")}
_COPIES = {"aten::clone", "aten::_to_copy"}


@dataclass(frozen=True)
class _Message:
    peer: int  # world rank
    step: int
    chunk: int
    slots: tuple[int, ...]  # bytes of each


class Additions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks on while a user's function works on ``x``; ``comm`` tells it of messages.

    By storage: ``holders`` have what the rank holds; ``pending`` what was received and is not yet
    part of that, ``used`` what is.
    """

    def __init__(self, comm: Any, x: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.comm = comm
        self.holders = {_storage(x)}
        self.pending: dict[int, _Message] = {}
        self.used: dict[int, _Message] = {}  # still there: it could be added again
        self.kept: list[Any] = [x]  # a storage that is freed could be another's the next moment

    def __enter__(self) -> Additions:
        self.comm.additions = self
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.comm.additions = None
        if self.pending:  # received, and neither added nor put in its place
            self.comm.untold = True

    # -- what the communicator tells --

    def sends(self, x: Any) -> None:
        if not isinstance(x, torch.Tensor) or _storage(x) not in self.holders:
            self.comm.untold = True

    def received(self, into: Any, peer: int, step: int, chunk: int, slots: tuple[int, ...]) -> None:
        """Note a message that was not added at once."""
        if not isinstance(into, torch.Tensor):
            self.comm.untold = True
            return
        place = _storage(into)
        if place in self.holders:
            self.holders = {place}
            return
        if place in self.pending:  # what was there is lost
            self.comm.untold = True
        self.used.pop(place, None)
        self.pending[place] = _Message(peer, step, chunk, slots)
        self.kept.append(into)

    # -- what torch does --

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        options = options or {}
        if function.is_view:
            return function(*arguments, **options)
        start = now()
        result = function(*arguments, **options)
        tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
        name = function._schema.name
        if name in _ADDS and len(tensors) == 2 and not options.get("alpha"):
            self._added(start, tensors, result)
        elif name in _COPIES and tensors:
            self._copied(tensors[0], result)
        elif name == "aten::copy_" and len(tensors) == 2:
            self._put(tensors[1], tensors[0])
        elif function._schema.is_mutable and tensors and self._knows(tensors[0]):
            self.comm.untold = True
        return result

    def _added(self, start: int, tensors: list[torch.Tensor], result: torch.Tensor) -> None:
        places = [_storage(one) for one in tensors]
        there = self.used | self.pending
        message = next((there[one] for one in places if one in there), None)
        if message is None or not any(one in self.holders for one in places):
            self.comm.untold |= any(self._knows(one) for one in (*tensors, result))
            return
        lane, end = self.comm.lane, now()
        for slot, nbytes in enumerate(message.slots):
            lane.write(REDUCE, start, end, message.peer, message.step, message.chunk, slot, nbytes)
        self._settled(message)
        self.holders = {_storage(result)}
        self.used.pop(_storage(result), None)
        self.kept.append(result)

    def _copied(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        place, new = _storage(source), _storage(copy)
        if place in self.holders:
            self.holders.add(new)
            self.kept.append(copy)
        elif place in self.pending:
            self.pending[new] = self.pending[place]
            self.kept.append(copy)

    def _put(self, source: torch.Tensor, into: torch.Tensor) -> None:
        """Note ``into.copy_(source)``: the received values take its place."""
        place, target = _storage(source), _storage(into)
        if place in self.pending and target in self.holders:
            self._settled(self.pending[place])
            self.holders = {target}
        elif self._knows(into) or self._knows(source):
            self.comm.untold = True

    def _settled(self, message: _Message) -> None:
        done = {at: one for at, one in self.pending.items() if one is message}
        self.pending = {at: one for at, one in self.pending.items() if at not in done}
        self.used |= done

    def _knows(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and (
            _storage(x) in self.holders or _storage(x) in self.pending
        )


def _storage(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()
