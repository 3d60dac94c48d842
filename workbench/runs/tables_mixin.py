"""Tables of a run's record: bytes, calls, iterations, waits, metrics, memory; a server's queue,
gradients, versions; a pipeline's actions. Every column has its unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.common.arguments import Number, Real, Text, checked

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
    def bytes(self, iteration: Number | None = None, by_peer: bool = False) -> pl.DataFrame:
        """Count the payload bytes of each rank, in one ``iteration`` or in all: a row per rank.

        rank; sent, received: bytes; through: their sum, what passes its network card; messages:
        the number that it sent.

        ``by_peer``: a row per rank, peer and kind of message instead, with rank; peer: where it
        sent to; what: the collective, or the name of a message from one to another, such as
        "activation"; group: of ranks; sent: bytes; messages.
        """
        from workbench.analysis.tables import traffic

        return traffic(self.store.scan(), iteration, by_peer)

    @checked
    def calls(self, iteration: Number | None = None, by_rank: bool = False) -> pl.DataFrame:
        """List the collective calls of one ``iteration``, or of all: a row per call, by its start.

        generation, group, op: which call; number: op + 1, as errors and pages count; iteration;
        collective; algorithm; name: of the tensor or bucket, or the line that calls; nbytes: bytes
        of what is reduced or moved; ranks: how many took part; start_ms: of the first rank; end_ms:
        of the last; took_ms: between these two; together_ms: from the last rank's start to the end,
        without the time for which early ranks waited for late ones; last: the rank that came last;
        late_ms: how long after the last but one; own_ms: of that, what it spent outside of calls
        for longer than the others did; completed. A call in which a rank failed, or was killed, was
        never completed: its times are null, and ranks in different calls have a row for each, with
        members: the ranks that were in it.

        ``by_rank``: a row per rank's part in a call instead, with rank; its own start_ms and
        took_ms; waited_ms: of that, how long it was blocked on its peers, null where nothing was
        recorded that tells it.
        """
        from workbench.analysis.call_tables import call_parts, calls

        return (call_parts if by_rank else calls)(self.store.scan(), iteration)

    def axes(self) -> pl.DataFrame:
        """Compare what each axis of a mesh sends with its formula: a row per axis, collective, rank
        and iteration.

        axis: "tp", or "dp+fsdp" where one line has both; collective: "p2p" for messages; rank;
        iteration; calls: how many; bytes: that the rank sent; formula_calls, formula_bytes: from
        the layout and the shapes alone (formulas/mesh.py), null where it has none; exposed_ms: how
        long the axis kept the rank from computing in that iteration, in all its collectives. What
        tp and zero 3 exchange stands within a layer's computing, and all of it counts. Empty for
        any other run.
        """
        from workbench.analysis.axes import axes

        return axes(self.store.events, self.store.metadata)

    def iterations(self) -> pl.DataFrame:
        """List the iterations of each rank that computes: a row per rank and iteration.

        rank; iteration; start_ms; took_ms: until the rank's next one starts, null in its last;
        computing_ms: of that, loading, forward and backward passes, and its own optimizer.
        """
        from workbench.analysis.tables import iterations

        return iterations(self.store.scan())

    @checked
    def waits(self, iteration: Number | None = None) -> pl.DataFrame:
        """Sum up the waits of ranks for peers, in one ``iteration`` or in all: a row per pair.

        rank; peer: for whose bytes it waited; what: the collective, "message" (point to point,
        push and pull too) or "grant" (a worker, until its server lets it go on); waits: how many;
        waited_ms: their sum; longest_ms; late_ms: of waited_ms, until the peer had come to the
        call, null where it is none. Then it was there, and waited itself or had bytes on the way.
        Where only operations were recorded, a rank waits for the one that came last.
        """
        from workbench.analysis.call_tables import waits

        return waits(self.store.scan(), iteration)

    @checked
    def metrics(self, name: Text) -> pl.DataFrame:
        """List the values of the metric ``name``, such as "loss", by time: a row per value.

        rank; iteration; generation: of the group of ranks; at_ms: when it was known; value. Empty
        where no rank records it.
        """
        from workbench.analysis.tables import metrics

        return metrics(self.store.scan(), name)

    @checked
    def memory(self, detail: bool = False) -> pl.DataFrame:
        """Return the most bytes that each rank has held of each kind of memory: a row per rank and
        kind.

        rank; kind: parameters, gradients, optimizer state; where it divides them gathered
        parameters and unreduced gradients (whole, until they are reduced); communication buffers;
        activations, counted where the experiment has a ``memory_limit`` and by fsdp and pipeline;
        and "all", what it held together at its peak, which is less than the sum of the others'.
        peak_bytes; at_ns: when it first held so many. Adam's counters of steps (4 bytes a tensor)
        are left out.

        ``detail``: a row per band instead, with what one layer holds of one kind from its birth
        until it is freed: rank; kind; layer, "" where none is known; stage, microbatch, -1 for
        none; iteration; born_ns, freed_ns: null while it is held; born, freed: what the rank
        computed then, or last (load, forward, backward, weight_grad, optimizer); bytes: at most.
        """
        from workbench.analysis.memory_tables import bands, peaks

        return (bands if detail else peaks)(self.store.scan())

    def queue(self) -> pl.DataFrame:
        """List the pushes that servers took in, by arrival: a row per push.

        server, worker, iteration; arrived_ms: when all of it had been sent; waited_ms: in the
        server's queue, until its update began; update_ms: how long the update took; end_ms: when it
        was done; blockers: the workers whose updates ran at that server meanwhile. Empty where no
        rank serves.
        """
        from workbench.analysis.tables import queue

        return queue(self.store.scan())

    def gradients(self) -> pl.DataFrame:
        """List the gradients that servers received, by time: a row per gradient and server.

        server, worker, iteration; at_ms: when it was applied, or dropped as too stale; staleness:
        how many updates of others it had missed, null where it was dropped; dropped; samples: that
        it was computed from; loss: their mean; version: the server's, after it. Empty where no rank
        serves.
        """
        from workbench.analysis.gradient_tables import gradients

        return gradients(self.store.scan())

    @checked
    def versions(self, at_ms: Real | None = None) -> pl.DataFrame:
        """Say which version of the parameters each worker held at a moment: a row per worker.

        ``at_ms``: milliseconds since the run's first event; None: the last one.
        rank; version: that it pulled last; behind: by how many updates that is older than the
        newest at any server; pulled_ms: when; doing: what it was in then (forward, backward, push,
        pull, wait), null in between. Empty where no rank serves.
        """
        from workbench.analysis.gradient_tables import versions

        return versions(self.store.scan(), at_ms)

    def actions(self) -> pl.DataFrame:
        """List the actions of a pipeline's schedule, by rank and time: a row per action.

        rank, iteration; action: such as "2F5", the forward of microbatch 5 on stage 2; stage; what:
        F, B, or of a backward in two I (input gradient) and W (weight gradient); microbatch: of its
        iteration; start_ms, took_ms; version: of the weights that it used; in_flight: microbatches
        that the rank then holds activations of, over its stages. Empty for any other run.
        """
        from workbench.analysis.pipeline_tables import actions

        return actions(self.store.events)

    def stages(self) -> pl.DataFrame:
        """List the stages of a pipeline: a row per stage.

        stage, rank; layers: how many; begins_with: the name of its first layer; parameters: bytes;
        cut_bytes: of a microbatch that cross the cut after it, null for the last stage;
        forward_ms, backward_ms: of a microbatch, medians without the first iteration; in_flight:
        the most microbatches between their forward and the end of their backward; activations: the
        most bytes that its rank held for them; memory: the bytes that its rank was planned to hold
        at most, null where no plan says. Empty for any other run.
        """
        from workbench.analysis.pipeline_tables import stage_table

        return stage_table(self.store.events, self.store.metadata)
