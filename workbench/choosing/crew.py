"""Real ranks of the warm pool that time algorithms, over links that are paced as asked.

with Crew(4) as crew:
    crew.pace(Links(latency_s=1e-3))
    crew.seconds("all_reduce", "ring", 1 << 20)
"""

from __future__ import annotations

import math
import selectors
import statistics
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from workbench.choosing.costs import SLOT_BYTES, Links
from workbench.control import Control
from workbench.errors import RunTimeout, WorkbenchError
from workbench.launchers.local import meeting_place, nursery
from workbench.launchers.worker import end, enlist
from workbench.shared import describe_end
from workbench.source import Source

DEADLINE = 60.0  # seconds for one case
ROUNDS = 5
BURST_BYTES = 4 << 20  # moved by a burst of calls, if that is more than two


class Crew:
    """So many ranks that wait for cases; a context manager, which ends them."""

    def __init__(self, n: int, slot_bytes: int = SLOT_BYTES) -> None:
        home = nursery()
        self.n, self._home = n, home
        self._levels: tuple[int, ...] = ()
        self._control = Control.create(n)
        self._store = meeting_place(n)
        self._workers = enlist(home, range(n))
        self.pids = {one.rank: one.pid for one in self._workers}
        for one in self._workers:
            orders = {
                "work": "timing", "rank": one.rank, "size": n, "port": self._store.port,
                "slot_bytes": slot_bytes,
            }  # fmt: skip
            one.order(orders, fds=[self._control.segment.fd])

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for one in self._workers:
            one.close()
        end(self._workers, patience=2.0 if kind is None else 0.1)
        self._control.segment.close()
        del self._store
        self._home.keep(self.n)

    def pace(self, links: Links) -> None:
        """From the next case on, links are as these."""
        self._levels = links.levels
        for a in range(self.n):
            for b in range(self.n):
                if a != b:
                    latency, rate = links.of(a, b)
                    self._control.set_link(
                        a, b, latency_ns=round(latency * 1e9),
                        bytes_per_second=1 / rate if rate else float("inf"), down=False,
                    )  # fmt: skip
        self._control.refresh()

    def rounds(
        self, operation: str, algorithm: str, nbytes: int, *, calls: int | None = None,
        rounds: int = ROUNDS, source: Source | None = None,
    ) -> list[float]:  # fmt: skip
        """Seconds a call of the slowest rank, by round. Raises WorkbenchError."""
        order = {
            "operation": operation, "algorithm": algorithm, "nbytes": nbytes, "rounds": rounds,
            "calls": calls or calls_of(nbytes), "source": source and source.model_dump(),
            "levels": self._levels,
        }  # fmt: skip
        for one in self._workers:
            one.order(order)
        answers = self._answers(f"{operation}/{algorithm} of {nbytes:,} bytes")
        return [max(each) for each in zip(*answers, strict=True)]

    def seconds(self, operation: str, algorithm: str, nbytes: int, **options: Any) -> float:
        """The median over rounds."""
        return statistics.median(self.rounds(operation, algorithm, nbytes, **options))

    def race(
        self, operation: str, names: Sequence[str], nbytes: int, rounds: int, share: float = 0.5,
        hopeless: float = math.inf,
    ) -> dict[str, float]:  # fmt: skip
        """Seconds a call of each, which take turns: what else the machine does meets all of them.

        ``share``: of the rounds the one that counts, 0.5 is the median. Who takes ``hopeless``
        times as long as the best in the first round is not tried again.
        """
        found: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                found[name] += self.rounds(operation, name, nbytes, rounds=1)
            least = min(each[0] for each in found.values())
            names = [name for name in names if found[name][0] < hopeless * least]
        return {name: sorted(each)[int(share * (len(each) - 1))] for name, each in found.items()}

    def _answers(self, what: str) -> list[list[float]]:
        found: dict[int, list[float]] = {}
        deadline = time.monotonic() + DEADLINE
        with selectors.DefaultSelector() as selector:
            for one in self._workers:
                selector.register(one.socket, selectors.EVENT_READ, one)
            while len(found) < self.n:
                if time.monotonic() > deadline:
                    late = [rank for rank in range(self.n) if rank not in found]
                    raise RunTimeout(f"ranks {late} are not done with {what} in {DEADLINE:.0f} s")
                for key, _ in selector.select(0.1):
                    one = key.data
                    message = one.hear()
                    if message is None:
                        how = "" if one.code is None else f", {describe_end(one.code)}"
                        raise WorkbenchError(f"rank {one.rank} ended in {what}{how}")
                    if "failed" in message[0]:
                        raise WorkbenchError(f"rank {one.rank}, {what}: {message[0]['words']}")
                    found[one.rank] = message[0]["seconds"]
                    selector.unregister(key.fileobj)
        return [found[rank] for rank in range(self.n)]


def calls_of(nbytes: int) -> int:
    """Of a burst."""
    return max(2, min(20, BURST_BYTES // max(1, nbytes)))
