"""Sharing gradients while backward still computes others: what ``fusion`` does with ``cycle``.

Gradients become ready in an order of each rank's own, and an all-reduce needs them on all ranks, in
one order. So ranks negotiate, in cycles: each reports to rank 0, the coordinator, which tensors
have become ready since its last report; rank 0 answers with those that are ready on all ranks now.
All fuse the answer alike and reduce it. A tensor that is late on one rank holds up no other.

Paper  Sergeev & Del Balso, arXiv 1802.05799, 2018 (Horovod). Not here: the response cache,
       by which later versions leave out what they have negotiated before.
Cost   a cycle: a gather and a broadcast of t numbers (group "control") for t tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from workbench.rank.job import Job

NONE = -1  # a place of a report, or an answer, that holds no tensor


class Coordinator:
    """Rank 0's table: how many ranks have reported each tensor."""

    def __init__(self, ranks: int, tensors: int) -> None:
        self._ranks, self._reported = ranks, [0] * tensors

    def answer(self, reports: Sequence[Sequence[int]]) -> list[int]:
        """Count new ``reports``, a rank each; return the tensors that are complete by them, in the
        order in which they became so.
        """
        result = []
        for report in reports:
            for tensor in report:
                self._reported[tensor] += 1
                if self._reported[tensor] == self._ranks:
                    result.append(tensor)
        return result


class Cycles:
    """``with cycles:`` around a backward: on leaving every gradient is shared.

    ``parameters``: named, alike on every rank; ``share`` is called with those that all ranks have
    gradients of, in the coordinator's order.
    """

    def __init__(
        self,
        job: Job,
        parameters: Sequence[tuple[str, torch.Tensor]],
        cycle_s: float,
        share: Callable[[Sequence[tuple[str, torch.Tensor]]], None],
    ) -> None:
        self._job, self._parameters, self._share = job, parameters, share
        self._cycle_s, self._group = cycle_s, job.group("control")
        self._ready: list[int] = []  # tensors whose gradient is there, in their order of coming
        self._over = threading.Event()  # backward is
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        for place, (_, one) in enumerate(parameters):
            hook = one.register_post_accumulate_grad_hook  # torch gives it no types
            hook(lambda _, place=place: self._ready.append(place))  # type: ignore[no-untyped-call]

    def __enter__(self) -> None:
        self._ready.clear()
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
            coordinator = Coordinator(self._job.ranks, len(self._parameters))
            reported = shared = 0
            while shared < len(self._parameters):
                self._over.wait(self._cycle_s)
                report = self._news(reported)
                reported += len(report)
                answer = self._negotiate(report, coordinator)
                self._share([self._parameters[place] for place in answer])
                shared += len(answer)
        except BaseException as error:  # it belongs to the thread that computes
            self._error = error

    def _news(self, reported: int) -> list[int]:
        """Return the tensors that have become ready since so many were reported."""
        # Asked first: what is there when backward is over is all that will be.
        over, ready = self._over.is_set(), [*self._ready]
        if over:  # the loss did not depend on what is still missing
            ready += [one for one in range(len(self._parameters)) if one not in {*ready}]
        return ready[reported:]

    def _negotiate(self, report: list[int], coordinator: Coordinator) -> list[int]:
        """Report to rank 0; return its answer."""
        room, first = len(self._parameters), self._job.rank == 0
        words = torch.tensor(report + [NONE] * (room - len(report)), dtype=torch.int32)
        all_words = [torch.empty_like(words) for _ in range(self._job.ranks)] if first else None
        with self._job.label("ready tensors"):
            dist.gather(words, all_words, dst=0, group=self._group)
        if all_words is not None:
            answer = coordinator.answer([_listed(one) for one in all_words])
            words = torch.tensor(answer + [NONE] * (room - len(answer)), dtype=torch.int32)
        with self._job.label("ready on all ranks"):
            dist.broadcast(words, src=0, group=self._group)
        return _listed(words)


def _listed(words: torch.Tensor) -> list[int]:
    return [one for one in words.tolist() if one != NONE]
