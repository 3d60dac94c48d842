"""A model's parameters as one vector, so that a server can hold any ranges of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class Flat:
    """A model's N trainable elements and their gradients, as ``values_N`` and ``grads_N``.

    Elements are in the order of ``model.parameters()``. Every parameter and its gradient is a view
    of these vectors. ``room``: makes the memory of the gradients.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        room: Callable[[torch.Tensor], torch.Tensor] = torch.empty_like,
    ) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.values_N = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.grads_N = room(self.values_N).zero_()
        start = 0
        for parameter in parameters:
            place = slice(start, start + parameter.numel())
            parameter.data = self.values_N[place].view_as(parameter)
            parameter.grad = self.grads_N[place].view_as(parameter)
            start += parameter.numel()


class Section:
    """Some ranges of ``whole_N``, concatenated as ``section_n`` in host memory.

    A single range is a view of the whole and costs nothing. Otherwise ``section_n`` is a buffer
    that ``gather`` fills and ``scatter`` writes back; ``room`` makes its memory.
    """

    def __init__(
        self,
        whole_N: torch.Tensor,
        ranges: Sequence[range],
        room: Callable[[torch.Tensor], torch.Tensor] = torch.empty_like,
    ) -> None:
        self.whole_N, self.ranges = whole_N, [positions for positions in ranges if len(positions)]
        elements = sum(map(len, self.ranges))
        self.is_view = len(self.ranges) <= 1 and whole_N.device.type == "cpu"
        if self.is_view:
            start = self.ranges[0].start if self.ranges else 0
            self.section_n = whole_N[start : start + elements]
        else:
            self.section_n = room(torch.empty(elements, dtype=whole_N.dtype))

    def gather(self) -> torch.Tensor:
        """Copy the ranges into the buffer, and return it."""
        if not self.is_view:
            start = 0
            for to in self.ranges:
                stop = start + len(to)
                self.section_n[start:stop].copy_(self.whole_N[to.start : to.stop])
                start = stop
        return self.section_n

    def scatter(self) -> None:
        """Copy the buffer back into the ranges."""
        if not self.is_view:
            start = 0
            for to in self.ranges:
                stop = start + len(to)
                self.whole_N[to.start : to.stop].copy_(self.section_n[start:stop])
                start = stop
