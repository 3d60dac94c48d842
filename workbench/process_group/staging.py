"""Tensors as a collective takes them: flat, in host memory; and its outcome back where it belongs.

Contiguous tensors of the host are taken as they lie; those of a list that follow each other in one
memory are one. Anything else is copied. Tensors on a GPU go through pinned host memory, on a
stream of its own; both ways are recorded as ``copy`` rows. Several ranks may share one GPU.

As over Gloo, autograd does not hear that a tensor is written here (``.data``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.recording.events import COPY, now
from workbench.recording.lane import Lane

Tensors = Sequence[torch.Tensor]


class Staging:
    """The host copies of one group."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._pinned: dict[tuple[torch.dtype, str], torch.Tensor] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def take(self, tensors: Tensors, ready: Any, *, into: bool = False) -> list[torch.Tensor]:
        """Return their elements in order, in flat tensors of the host: their own memory, or a copy.

        ``ready``: after which their values are there. A copy that only takes what comes in is not
        filled (``into``).
        """
        if (flats := own_memory(tensors)) is not None:
            return flats
        host = self._room(tensors, "into" if into else "from")
        if into:
            return [host]
        if tensors[0].is_cpu:
            _copy(tensors, host, False)
            return [host]
        start = now()
        with torch.cuda.stream(self._stream(tensors[0].device, ready)):
            _copy(tensors, host, False)
            torch.cuda.current_stream(tensors[0].device).synchronize()
        self._record(start, host.nbytes, "device to host")
        return [host]

    def give(self, tensors: Tensors, flats: list[torch.Tensor], ready: Any) -> None:
        """Copy the outcome into ``tensors`` unless it is there; it is complete on return."""
        if tensors[0].data_ptr() == flats[0].data_ptr():  # as they lay; what is empty lies at 0
            return
        (host,) = flats
        if tensors[0].is_cpu:
            _copy(tensors, host, True)
            return
        start = now()
        with torch.cuda.stream(self._stream(tensors[0].device, ready)):
            _copy(tensors, host, True)
            torch.cuda.current_stream(tensors[0].device).synchronize()
        self._record(start, host.nbytes, "host to device")

    def _room(self, tensors: Tensors, use: str) -> torch.Tensor:
        """Return host memory for these tensors; for tensors on a GPU it is pinned and kept."""
        dtype, elements = tensors[0].dtype, sum(x.numel() for x in tensors)
        if tensors[0].is_cpu:
            return torch.empty(elements, dtype=dtype)
        pinned = self._pinned.get((dtype, use))
        if pinned is None or pinned.numel() < elements:
            with torch.inference_mode(False):  # it is kept, and written in other modes too
                pinned = torch.empty(elements, dtype=dtype, pin_memory=True)
            self._pinned[dtype, use] = pinned
        return pinned[:elements]

    def _stream(self, device: torch.device, ready: Any) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        if ready is not None:
            self._streams[device].wait_event(ready)
        return self._streams[device]

    def _record(self, start: int, nbytes: int, name: str) -> None:
        self._lane.write(COPY, start, now(), nbytes=nbytes, name=self._lane.recorder.name(name))


def own_memory(tensors: Tensors) -> list[torch.Tensor] | None:
    """Return the host tensors' own memory, flat: one tensor if they lie in it without a gap."""
    for x in tensors:
        if not x.is_cpu or not x.is_contiguous() or x.is_conj() or x.is_neg():
            return None
    if len(tensors) == 1:
        return [x.data if x.ndim == 1 else x.data.view(-1)]
    first = tensors[0].data
    end, elements = first.data_ptr(), 0
    memory = first.untyped_storage().data_ptr()
    for x in tensors:  # adjacent by chance does not count
        if x.data_ptr() != end or x.untyped_storage().data_ptr() != memory:
            return [x.data.view(-1) for x in tensors]
        end, elements = end + x.nbytes, elements + x.numel()
    return [first.as_strided((elements,), (1,))]


def in_mode_of(x: torch.Tensor, work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``work``, which writes ``x``: a tensor of inference mode may be written in that mode
    only, and a group's thread is in none.
    """
    return torch.inference_mode()(work) if x.is_inference() else work


def values_ready(tensors: Tensors) -> Any:
    """Return, for tensors on a GPU, the point in the caller's stream after which their values are
    there and their memory is free to be written.
    """
    x = tensors[0]
    if not x.is_cuda:
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(x.device))
    return event


def _copy(tensors: Tensors, flat: torch.Tensor, out: bool) -> None:
    """Copy between ``flat`` and the tensors, one after the other."""
    at = 0
    for x in tensors:
        part = flat[at : at + x.numel()].view(x.shape)
        at += x.numel()
        if out:
            x.data.copy_(part, non_blocking=True)
        else:
            part.copy_(x.detach(), non_blocking=True)
