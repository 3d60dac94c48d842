"""A NaN in an all-reduce: which chunks carry it, and which ranks they reach in which step.

What ranks send is not recorded, but for each message its chunk is. So the way of a NaN is followed:
from the chunks that held one on the rank that ``wb.Corrupt`` struck, which that rank looked at
before the sum, through every message that was sent by a rank that had it by then.

    a NaN plus anything is a NaN    a chunk that was added to one that carries it carries it too
    step s sends what came before   a rank passes on what it received in steps below s

Where one call sends the gradients of several parameters (a bucket, a fused tensor) nothing says in
which chunk each lies: all chunks of such a call count as poisoned (``exact`` is False).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from workbench.recording.events import POISONED

_COLUMNS = {
    "tensor": pl.String,
    "op": pl.Int64,
    "step": pl.Int64,
    "chunk": pl.Int64,
    "sender": pl.Int64,
    "receiver": pl.Int64,
    "end_ns": pl.Int64,
    "exact": pl.Boolean,
}


@dataclass(frozen=True, repr=False)
class Poison:
    """The way of a NaN through one iteration's sums.

    ``table``: a row for each message that brought a chunk with a NaN to a rank for the first time:
    tensor, op, step, chunk, sender, receiver, end_ns, exact. ``parameters``: those whose gradient
    had one on ``rank``; empty where the strategy sums gradients before they can be looked at.
    """

    rank: int
    iteration: int
    sample: int
    parameters: tuple[str, ...]
    table: pl.DataFrame

    @property
    def reached(self) -> list[int]:
        """The ranks that received a NaN."""
        return sorted(self.table["receiver"].unique().to_list())

    def __repr__(self) -> str:
        head = (
            f"sample {self.sample} of rank {self.rank} has a NaN in iteration {self.iteration + 1}"
        )
        if not self.table.height:
            return f"{head}; no rank received it"
        first = self.table.filter(pl.col("op") == self.table["op"][0])
        steps = [
            f"step {step + 1}: chunk {chunk} from rank {sender} to {receiver}"
            for step, chunk, sender, receiver in first.select(
                "step", "chunk", "sender", "receiver"
            ).rows()
        ]
        calls = self.table["op"].n_unique()
        named = f" of {first['tensor'][0]}" if first["tensor"][0] else ""
        more = f", and so in {calls - 1} more calls" if calls > 1 else ""
        return "\n  ".join([f"{head}; in the all-reduce{named}{more}", *steps])


def follow(events: pl.DataFrame | pl.LazyFrame) -> Poison | None:
    """Follow the first NaN of a run; None where there is none, or it never came to a sum."""
    p = pl.col
    text = [p(name).cast(pl.String) for name in ("kind", "name", "phase", "group", "collective")]
    rows = events.lazy().with_columns(text)
    struck = rows.filter(p("kind") == "fault", p("name") == "corrupt nan").collect()
    if not struck.height:
        return None
    fault = struck.sort("start_ns").row(0, named=True)
    rank, iteration, generation = fault["rank"], fault["iteration"], fault["generation"]
    sums_rows = rows.filter(
        p("iteration") == iteration, p("generation") == generation, p("group") != "metrics"
    ).collect()
    bad = p("name").str.starts_with("bad minibatch")
    if sums_rows.filter(p("kind") == "detect", bad).height:  # before the sum
        return None
    looked = sums_rows.filter(p("rank") == rank, p("kind") == "metric", p("name") == POISONED)
    chunks: dict[str, set[int]] = {}
    for parameter, chunk in looked.select("phase", "chunk").iter_rows():
        chunks.setdefault(parameter, set()).add(chunk)
    sums = sums_rows.filter(
        p("kind").is_in(["collective", "recv"]), p("collective") == "all_reduce"
    )
    spread = [one for call in _calls(sums) for one in _one_call(*call, rank, chunks)]
    table = pl.DataFrame(spread, schema=_COLUMNS, orient="row")
    return Poison(rank, iteration, int(fault["value"]), tuple(chunks), table)


def _calls(sums: pl.DataFrame) -> Iterator[tuple[str, int, pl.DataFrame]]:
    """Yield each call's label, number and received messages, in order."""
    for (_, op), rows in sums.sort("op").group_by("group", "op", maintain_order=True):
        outer = rows.filter(pl.col("kind") == "collective")
        label = outer["name"][0] if outer.height else ""
        yield label, int(str(op)), rows.filter(pl.col("kind") == "recv").sort("step", "end_ns")


def _one_call(
    label: str, op: int, received: pl.DataFrame, rank: int, chunks: dict[str, set[int]]
) -> Iterator[tuple[object, ...]]:
    """Yield the messages of one call that brought a NaN to where there was none."""
    exact = label in chunks
    poisoned = chunks.get(label) if exact else None
    if poisoned is None and chunks and not _of_several(label):
        return  # of a parameter whose gradient was finite
    since: dict[tuple[int, int], int] = {}  # (rank, chunk): the step that brought it
    columns = received.select("step", "chunk", "peer", "rank", "end_ns")
    for step, chunk, sender, receiver, end in columns.iter_rows():
        if sender == rank and (poisoned is None or chunk in poisoned or chunk < 0):
            carries = True
        else:
            carries = since.get((sender, chunk), step) < step
        if carries and receiver != rank and (receiver, chunk) not in since:
            since[receiver, chunk] = step
            yield label, op, step, chunk, sender, receiver, end, exact


def _of_several(label: str) -> bool:
    """Return whether a call sends several parameters at once, by its label."""
    return not label or " to " in label or label.startswith("bucket")
