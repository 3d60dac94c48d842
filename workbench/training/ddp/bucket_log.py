"""The log of DDP's buckets: the parameters of each, as its hook is given them.

DDP begins with buckets in the reverse order of the parameters, or with a single one where it may
rebuild them; after the first backward it builds them again, in the order in which gradients came.

Source  Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
        2020, section 3.2.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from workbench.common.errors import WorkbenchError

Names = list[list[str]]  # by bucket
NAMED = 6  # parameters in an error; more are counted


@dataclass(frozen=True)
class Buckets:
    """The content of the buckets, for the page."""

    cap_mb: float  # MiB: a bucket is closed with the parameter that brings it there
    first: Names  # of the first iteration
    rebuilt: Names | None  # afterwards; None: they stay, or it is not known yet
    rebuilt_at: int  # iteration from which on
    bytes: list[int]  # of gradients in each of the newest

    def to_json(self) -> str:
        return json.dumps(vars(self))


class BucketLog:
    """The buckets of a model; ``tell`` gets new facts, ``mark`` is called when they change."""

    def __init__(
        self,
        model: DistributedDataParallel,
        cap_mb: float,
        tell: Callable[[dict[str, str]], None],
        mark: Callable[[], None],
    ) -> None:
        self._names = {id(value): name for name, value in model.module.named_parameters()}
        self._model, self._cap_mb, self._tell, self._mark = model, cap_mb, tell, mark
        self._current: dict[int, tuple[list[str], int]] = {}
        self._published: Buckets | None = None
        self._rebuilt = False
        # DDP rebuilds right before it calls the model itself.
        model.module.register_forward_pre_hook(lambda *_: self._look())

    def _look(self) -> None:
        if self._model._has_rebuilt_buckets and not self._rebuilt:
            self._rebuilt = True
            self._mark()

    def forget(self) -> None:
        """Forget the buckets of a backward pass outside of iterations."""
        self._look()
        self._current.clear()

    def saw(self, bucket: GradBucket) -> None:
        """Note a bucket that is about to be reduced."""
        names = [self._names.get(id(one), "?") for one in bucket.parameters()]
        buffer = bucket.buffer()
        self._current[bucket.index()] = names, buffer.numel() * buffer.element_size()

    def close(self, iteration: int) -> None:
        """End the iteration, and publish its buckets if they differ from the ones before."""
        self._look()
        buckets = [self._current[index] for index in sorted(self._current)]
        self._current.clear()
        names, sizes = [one for one, _ in buckets], [size for _, size in buckets]
        before = self._published
        if not names or (before is not None and names == (before.rebuilt or before.first)):
            return
        self._published = (
            Buckets(self._cap_mb, names, None, -1, sizes)
            if before is None
            else Buckets(self._cap_mb, before.first, names, iteration, sizes)
        )
        self._tell({"buckets": self._published.to_json()})


@contextmanager
def unused_named(model: nn.Module) -> Iterator[None]:
    """Add names and advice to DDP's own error about parameters without a gradient."""
    try:
        yield
    except RuntimeError as error:
        match = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(error))
        if match is None:
            raise
        names = [name for name, value in model.named_parameters() if value.requires_grad]
        without = [names[int(number)] for number in match[1].split()]
        some = ", ".join(without[:NAMED]) + (
            f" and {len(without) - NAMED} more" * (len(without) > NAMED)
        )
        raise WorkbenchError(
            f"DDP waits for gradients that never come: {some} had none in the "
            "iteration before. Take options={'find_unused': True}, or leave them out of the model"
        ) from error
