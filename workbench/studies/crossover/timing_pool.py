"""The ranks that time algorithms: processes of the warm pool, over links that are paced as asked.

with TimingPool(4) as pool:
    pool.pace(Links(latency_s=1e-3))
    pool.seconds("all_reduce", "ring", 1 << 20)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from workbench.choosing.costs import SLOT_BYTES, Links
from workbench.common.descriptors import check_descriptors
from workbench.common.errors import RunTimeout, WorkbenchError
from workbench.launchers.processes.launcher import launcher_of
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.recording.run_queue import OwnTime
from workbench.shared_memory.network_cards import set_up_cards
from workbench.shared_memory.segments import describe_end
from workbench.user_code.source import Source

DEADLINE = 60.0  # seconds of the ranks' own for one case
ROUNDS = 5
BURST_BYTES = 4 << 20  # moved by a burst of calls, if that is more than two


class TimingPool:
    """Ranks that wait for cases to time; a context manager, which ends them."""

    def __init__(self, n: int, slot_bytes: int = SLOT_BYTES) -> None:
        from workbench.store.event_store import Store

        check_descriptors(n)
        self.n, self._launcher = n, launcher_of("local")
        self._levels: tuple[int, ...] = ()
        self._meeting = self._launcher.meeting_place(n)
        self._group = WorkerGroup(n, self._launcher.take, Store())  # its ranks record nothing
        order = {"work": "timing", "size": n, "port": self._meeting.port, "slot_bytes": slot_bytes}
        try:
            self._group.start(order)
        except BaseException:
            self._group.close()
            raise
        self.pids = self._group.pids

    def __enter__(self) -> TimingPool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._group.close(patience=2.0 if kind is None else 0.1)
        del self._meeting
        self._launcher.close(self.n)

    def pace(self, links: Links) -> None:
        """Emulate these links from the next case on."""
        self._levels = links.levels
        for a in range(self.n):
            for b in range(self.n):
                if a != b:
                    latency, rate = links.of(a, b)
                    self._group.control.set_link(
                        a,
                        b,
                        latency_ns=round(latency * 1e9),
                        bytes_per_second=1 / rate if rate else float("inf"),
                        down=False,
                    )
        card, switch = (
            1 / rate if rate else float("inf")
            for rate in (links.nic_s_per_byte, links.switch_s_per_byte)
        )
        set_up_cards(self._group.control, card, links.nics.count(0) or 1, switch)

    def rounds(
        self,
        operation: str,
        algorithm: str,
        nbytes: int,
        *,
        calls: int | None = None,
        rounds: int = ROUNDS,
        source: Source | None = None,
    ) -> list[float]:
        """Return the seconds per call of the slowest rank, by round. Raises WorkbenchError."""
        order = {
            "operation": operation,
            "algorithm": algorithm,
            "nbytes": nbytes,
            "rounds": rounds,
            "calls": calls or calls_of(nbytes),
            "source": source and source.model_dump(),
            "levels": self._levels,
        }
        self._group.order(order)
        answers = self._answers(f"{operation}/{algorithm} of {nbytes:,} bytes")
        return [max(each) for each in zip(*answers, strict=True)]

    def seconds(self, operation: str, algorithm: str, nbytes: int, **options: Any) -> float:
        """Return the median over rounds of the seconds per call."""
        return statistics.median(self.rounds(operation, algorithm, nbytes, **options))

    def race(
        self,
        operation: str,
        names: Sequence[str],
        nbytes: int,
        rounds: int,
        share: float = 0.5,
        hopeless: float = math.inf,
    ) -> dict[str, float]:
        """Return the seconds per call of each algorithm; they take turns, so disturbances hit all.

        ``share``: the quantile over rounds, 0.5 is the median. An algorithm that takes ``hopeless``
        times as long as the best in the first round is not tried again.
        """
        result: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                result[name] += self.rounds(operation, name, nbytes, rounds=1)
            least = min(each[0] for each in result.values())
            names = [name for name in names if result[name][0] < hopeless * least]
        return {name: sorted(each)[int(share * (len(each) - 1))] for name, each in result.items()}

    def _answers(self, what: str) -> list[list[float]]:
        result: dict[int, list[float]] = {}
        clock = OwnTime([*self.pids.values()])
        while len(result) < self.n:
            if clock.seconds > DEADLINE:
                late = [rank for rank in range(self.n) if rank not in result]
                raise RunTimeout(
                    f"timed out: ranks {late} are not done with {what} in {DEADLINE:.0f} s"
                )
            ended = self._group.ended  # first: their last words are there
            for rank, message, _ in self._group.hear(0.1):
                if "failed" in message:
                    raise WorkbenchError(f"rank {rank}, {what}: {message['words']}")
                result[rank] = message["seconds"]
            for rank in ended.keys() - result.keys():
                raise WorkbenchError(f"rank {rank} ended in {what}, {describe_end(ended[rank])}")
        return [result[rank] for rank in range(self.n)]


def calls_of(nbytes: int) -> int:
    """Return the number of calls in a burst."""
    return max(2, min(20, BURST_BYTES // max(1, nbytes)))
