"""A batch as one flat tensor of bytes, and back: what travels between a server and a worker.

The form of a batch (its nesting, each tensor's dtype and the shape of one sample) is the task's, so
both ends know it, and only values travel: no header, no pickle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from workbench.common.errors import WorkbenchError


@dataclass(frozen=True)
class Form:
    """The form of a batch, whatever the number of its samples."""

    nesting: pytree.TreeSpec
    parts: tuple[tuple[torch.dtype, tuple[int, ...]], ...]  # a tensor: dtype, shape of one sample

    @classmethod
    def of(cls, batch: Any) -> Form:
        """Return the form of a batch. Raises WorkbenchError if it holds anything but tensors."""
        leaves, nesting = pytree.tree_flatten(batch)
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor) or not leaf.dim():
                raise WorkbenchError(
                    f"a batch of this task holds {leaf!r:.60}: servers of examples send tensors "
                    "with a row for each sample, nothing else. Make it a tensor in the dataset"
                )
        return cls(nesting, tuple((leaf.dtype, tuple(leaf.shape[1:])) for leaf in leaves))

    def nbytes(self, samples: int) -> int:
        """Return the bytes of a batch of ``samples``."""
        return samples * sum(dtype.itemsize * math.prod(rest) for dtype, rest in self.parts)

    def pack(self, batch: Any) -> torch.Tensor:
        """Pack the batch's tensors into one of bytes (uint8, in host memory)."""
        leaves, nesting = pytree.tree_flatten(batch)
        parts = tuple((leaf.dtype, tuple(leaf.shape[1:])) for leaf in leaves)
        if nesting != self.nesting or parts != self.parts:
            raise WorkbenchError(
                f"a batch of {parts} where one of {self.parts} was expected: all samples of a task "
                "must have one form for servers to send them. Pad them in the dataset"
            )
        flat = [leaf.cpu().contiguous().view(-1).view(torch.uint8) for leaf in leaves]
        return torch.cat(flat)

    def unpack(self, bytes_N: torch.Tensor, samples: int) -> Any:
        """Unpack the batch; its tensors share no memory with ``bytes_N``."""
        sizes = [samples * dtype.itemsize * math.prod(rest) for dtype, rest in self.parts]
        leaves = [
            piece.clone().view(dtype).view(samples, *rest)
            for piece, (dtype, rest) in zip(torch.split(bytes_N, sizes), self.parts, strict=True)
        ]
        return pytree.tree_unflatten(leaves, self.nesting)
