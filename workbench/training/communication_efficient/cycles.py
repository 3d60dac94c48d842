"""Sharing gradients in cycles while backward still computes others: what ``fusion`` does with
``cycle``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from workbench.rank.job import Job


class Cycles:
    """``with cycles:`` around a backward: on leaving every gradient is shared.

    ``parameters`` in the order in which they are shared, the same on every rank; ``share`` is
    called with some that follow each other, which all ranks have gradients of.
    """

    def __init__(
        self,
        job: Job,
        parameters: Sequence[tuple[str, torch.Tensor]],
        cycle_s: float,
        share: Callable[[Sequence[tuple[str, torch.Tensor]]], None],
    ) -> None:
        self._parameters, self._cycle_s, self._share = parameters, cycle_s, share
        self._group = job.group("control")
        self._there: set[int] = set()  # places of the parameters whose gradient is there
        self._over = threading.Event()  # backward is
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        for place, (_, one) in enumerate(parameters):
            hook = one.register_post_accumulate_grad_hook  # torch gives it no types
            hook(lambda _, place=place: self._there.add(place))  # type: ignore[no-untyped-call]

    def __enter__(self) -> None:
        self._there.clear()
        self._over.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="fusion cycles")
        self._thread.start()

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        if failure[0] is None and self._thread is not None:
            self._thread.join()  # its collectives have deadlines of their own
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        torch.set_num_threads(1)
        try:
            done = 0
            while done < len(self._parameters):
                self._over.wait(self._cycle_s)
                upto = self._agreed(done)
                self._share(self._parameters[done:upto])
                done = upto
        except BaseException as error:  # it belongs to who computes
            self._error = error

    def _agreed(self, done: int) -> int:
        """Return the position up to which every rank has all gradients."""
        # Told first: what is there when backward is over is all that will be.
        over, upto = self._over.is_set(), done
        while upto < len(self._parameters) and upto in self._there:
            upto += 1
        if over:  # the loss did not depend on what is still missing
            upto = len(self._parameters)
        least = torch.tensor([upto])
        dist.all_reduce(least, op=dist.ReduceOp.MIN, group=self._group)
        return int(least)
