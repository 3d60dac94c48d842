"""Tensors that do not lie flat in host memory: made so before a collective, and put back after it.

A tensor on a GPU goes through pinned host memory, on a stream of its own; both ways are recorded as
``copy`` rows. Several ranks may share one GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from workbench.events import COPY, Lane, now


class Staging:
    """The host copies of one group."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._pinned: dict[torch.dtype, torch.Tensor] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def to_host(self, x: torch.Tensor, ready: torch.cuda.Event | None) -> torch.Tensor:
        """A contiguous copy of ``x`` on the host. ``ready``: after which its values are there."""
        if x.device.type == "cpu":
            return x.contiguous()
        start = now()
        pinned = self._pinned.get(x.dtype)
        if pinned is None or pinned.numel() < x.numel():
            pinned = torch.empty(x.numel(), dtype=x.dtype, pin_memory=True)
            self._pinned[x.dtype] = pinned
        host = pinned[: x.numel()].view(x.shape)
        with torch.cuda.stream(self._stream(x.device)):
            stream = torch.cuda.current_stream(x.device)
            if ready is not None:
                stream.wait_event(ready)
            host.copy_(x, non_blocking=True)
            stream.synchronize()
        self._record(start, host.nbytes, "device to host")
        return host

    def back(self, x: torch.Tensor, host: torch.Tensor) -> None:
        """Put the outcome back into ``x``; its values are there when this returns."""
        if x.device.type == "cpu":
            x.copy_(host)
            return
        start = now()
        with torch.cuda.stream(self._stream(x.device)):
            x.copy_(host, non_blocking=True)
            torch.cuda.current_stream(x.device).synchronize()
        self._record(start, host.nbytes, "host to device")

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]

    def _record(self, start: int, nbytes: int, name: str) -> None:
        self._lane.write(COPY, start, now(), nbytes=nbytes, name=self._lane.recorder.name(name))


def values_ready(x: torch.Tensor) -> Any:
    """For a tensor on a GPU: the point in the caller's stream after which its values are there."""
    if x.device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(x.device))
    return event
