"""Tables of a run's record: bytes, calls, iterations, waits, queue; every column has its unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.common.arguments import Number, checked

if TYPE_CHECKING:
    import polars as pl

    from workbench.store.event_store import Store


class Tables:
    """Polars tables of what ``store`` holds so far; see analysis/tables.py.

    Groups of metrics and of control are left out. Moments (``..._ms`` of a start, an end, an
    arrival) are milliseconds since the run's first event, durations milliseconds.
    """

    store: Store

    @checked
    def bytes(self, iteration: Number | None = None) -> pl.DataFrame:
        """Count the payload bytes of each rank, in one ``iteration`` or in all: a row per rank.

        rank; sent, received: bytes; through: their sum, what passes its network card; messages:
        the number that it sent.
        """
        from workbench.analysis.tables import traffic

        return traffic(self.store.scan(), iteration)

    @checked
    def calls(self, iteration: Number | None = None, by_rank: bool = False) -> pl.DataFrame:
        """List the collective calls of one ``iteration``, or of all: a row per call, by its start.

        generation, group, op: which call; iteration; collective; algorithm; name: of the tensor or
        bucket; nbytes: bytes of what is reduced or moved; ranks: how many took part; start_ms: of
        the first rank; end_ms: of the last; took_ms: between these two; together_ms: from the last
        rank's start to the end, without the time for which early ranks waited for late ones.

        ``by_rank``: a row per rank's part in a call instead, with rank; its own start_ms and
        took_ms; waited_ms: of that, how long it was blocked on its peers.
        """
        from workbench.analysis.tables import calls

        return calls(self.store.scan(), iteration, by_rank)

    def iterations(self) -> pl.DataFrame:
        """List the iterations of each rank that computes: a row per rank and iteration.

        rank; iteration; start_ms; took_ms: until the rank's next one starts, null in its last;
        computing_ms: of that, loading, forward and backward passes, and its own optimiser.
        """
        from workbench.analysis.tables import iterations

        return iterations(self.store.scan())

    @checked
    def waits(self, iteration: Number | None = None) -> pl.DataFrame:
        """Sum up who waited for whom, in one ``iteration`` or in all: a row per rank and peer.

        rank; peer: for whose bytes it waited; what: the collective, "message" (point to point,
        push and pull too) or "grant" (a worker, until its server lets it go on); waits: how many;
        waited_ms: their sum; longest_ms.
        """
        from workbench.analysis.tables import waits

        return waits(self.store.scan(), iteration)

    def queue(self) -> pl.DataFrame:
        """List the pushes that servers took in, by arrival: a row per push.

        server, worker, iteration; arrived_ms: when all of it had been sent; waited_ms: in the
        server's queue, until its update began; update_ms: how long the update took; end_ms: when it
        was done; blockers: the workers whose updates ran at that server meanwhile. Empty where no
        rank serves.
        """
        from workbench.analysis.tables import queue

        return queue(self.store.scan())
