"""``wb.partition``: which sample goes to which rank in which minibatch, seen and judged.

wb.partition(24, batch_size=8, ranks=2)                 torch's DistributedSampler, in order
wb.partition(10, 4, 4, shuffle=True, epochs=2)          it repeats two samples: which?
wb.partition(samplers=[mine(rank) for rank in range(4)])   your own samplers or DataLoaders
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.errors import SpecError
from workbench.partitions.laws import Averages, Law, averages, laws
from workbench.partitions.minibatches import Minibatch, dealt, drawn, listened, places, share
from workbench.units import counted

if TYPE_CHECKING:
    import polars as pl

SAMPLERS = {
    "distributed": "torch's DistributedSampler and BatchSampler",
    "workbench": "the workbench's minibatches, as its runs take them",
}
MOST = 1_000_000  # samples that are dealt out, and minibatches that own samplers are asked for


@dataclass(frozen=True)
class Partition:
    """Minibatches and their parts. Shows itself in a notebook; ``print`` gives the table."""

    samples: int  # of the data set
    batch_size: int  # of the whole minibatch; 0: own samplers did not say
    ranks: int  # among how many they are dealt out
    shuffle: bool  # another order each epoch
    drop_last: bool  # what does not go round is left out, not repeated
    sampler: str  # "distributed", "workbench" or "own"
    minibatches: tuple[Minibatch, ...]  # of all epochs, in order
    options: tuple[tuple[str, Any], ...] = ()  # what it was made from, for ``explore``

    @property
    def equal(self) -> bool:
        """Do the ranks' minibatches together equal those of one process, every one of them?"""
        return all(one.equal for one in self.minibatches)

    def laws(self) -> list[Law]:
        """What holds and what does not: the same minibatches, every sample once, parts of one size,
        as many on every rank, another order each epoch.
        """
        each, m, p = share(self.batch_size, self.ranks), self.batch_size, self.ranks
        why = f"{m} does not divide by {p}, so each rank takes {each} of it"
        uneven = self.sampler == "distributed" and m != each * p
        return laws(self.minibatches, self.samples, p, self.shuffle, why if uneven else "")

    @property
    def words(self) -> str:
        """What it comes to, in a sentence or two."""
        wrong = [law for law in self.laws() if not law.holds]
        deal = (
            f"{counted(self.samples, 'sample')} in {counted(len(self.minibatches), 'minibatch')} "
        )
        deal += f"over {counted(self.ranks, 'rank')}"
        if not wrong:
            return f"{deal}: what one process takes, each sample once."
        return f"{deal}: {wrong[0].words}."

    def averages(self, values: Sequence[float], epoch: int = 0) -> Averages:
        """The mean of ``values``, one a sample by id, over an epoch: each sample once, as ranks sum
        it up, and as the mean of the ranks' means. Raises SpecError for too few values, or where
        there is no such epoch.
        """
        if len(values) < self.samples:
            raise SpecError(
                f"{counted(len(values), 'value')} for {counted(self.samples, 'sample')}: one each"
            )
        own = [one for one in self.minibatches if one.epoch == epoch]
        if not own:
            raise SpecError(f"there is no epoch {epoch} in this partition")
        return averages(values, [[i for one in own for i in one.of[r]] for r in range(self.ranks)])

    @property
    def table(self) -> pl.DataFrame:
        """A row a sample taken: epoch, minibatch, rank (-1: one process), position, sample,
        repeated.
        """
        import polars as pl

        rows = [
            (one.epoch, one.number, rank, at, sample, rank >= 0 and at in one.repeated[rank])
            for one in self.minibatches
            for rank, ids in enumerate((one.sequential, *one.of), -1)
            for at, sample in enumerate(ids)
        ]
        schema = {"epoch": pl.Int32, "minibatch": pl.Int32, "rank": pl.Int32,
                  "position": pl.Int32, "sample": pl.Int64, "repeated": pl.Boolean}  # fmt: skip
        return pl.DataFrame(rows, schema=schema, orient="row")

    @property
    def facts(self) -> dict[str, Any]:
        """As the page's run.samples."""
        from workbench.partitions.facts import facts_of

        return facts_of(
            self.minibatches, samples=self.samples, batch_size=self.batch_size, ranks=self.ranks,
            drop_last=self.drop_last, shuffle=self.shuffle, sampler=self.sampler,
            laws=self.laws(),
        )  # fmt: skip

    def explore(self) -> Any:
        """The same with a slider for each number, in a notebook."""
        from workbench.views.explore import explore

        return explore(**dict(self.options))

    def __str__(self) -> str:
        several = any(one.epoch for one in self.minibatches)
        lines = []
        for one in self.minibatches:
            lines.append(
                f"epoch {one.epoch} " * several
                + f"minibatch {one.number}: {' '.join(map(str, one.sequential)) or '-'}"
            )
            for rank, ids in enumerate(one.of):
                again = one.repeated[rank]
                told = (f"({i})" if at in again else str(i) for at, i in enumerate(ids))
                lines.append(f"    rank {rank}: {' '.join(told) or '-'}")
        if any(any(one.repeated) for one in self.minibatches):
            lines.append("(in brackets: taken before in this epoch)")
        for law in self.laws():
            lines.append(f"{'holds' if law.holds else 'does not hold'}: {law.name}: {law.words}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Partition: {self.words}>"

    def _repr_html_(self) -> str:
        """A still picture, and what holds of it."""
        from workbench.views.embedded import image
        from workbench.views.svg_samples import svg

        rows = "".join(
            f"<tr><td>{'✓' if law.holds else '≠'}</td>"
            f'<td style="text-align:left">{escape(law.name)}</td>'
            f'<td style="text-align:left">{escape(law.words)}</td></tr>'
            for law in self.laws()
        )
        picture = image(svg(self.facts, self.words), self.words)
        return f"{picture}<table><tbody>{rows}</tbody></table>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        try:
            from workbench.jupyter import ModelStage
        except ModuleNotFoundError:
            return {"text/plain": str(self), "text/html": self._repr_html_()}
        from workbench.views.samples_page import samples_page

        page = samples_page(self.facts, self.words)
        return ModelStage(page, repr(self), self._repr_html_())._repr_mimebundle_(**options)


def partition(
    samples: int | Sequence[int] | None = None,
    batch_size: int | None = None,
    ranks: int = 2,
    *,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    drop_last_batch: bool | None = None,
    set_epoch: bool = True,
    epochs: int = 1,
    sampler: str = "distributed",
    samplers: Sequence[Any] | None = None,
    sequential: Any = None,
) -> Partition:
    """Deal samples out to ranks, minibatch by minibatch, beside what one process would take.

    samples     how many, 24 if not given; or the sample at each place of the data set
    batch_size  of the whole minibatch, 8 if not given; a rank takes batch_size // ranks of it
    ranks       among how many it is dealt out
    shuffle     another order each epoch, from ``seed`` and the epoch
    drop_last   DistributedSampler leaves samples out where it would repeat some; and BatchSampler
                leaves out a last, smaller minibatch, unless ``drop_last_batch`` says otherwise
    set_epoch   False: set_epoch(epoch) is forgotten, as happens
    epochs      how many are dealt out
    sampler     "distributed": torch's DistributedSampler and BatchSampler; "workbench": as runs
    samplers    your own, one a rank: DataLoaders, batch samplers, samplers (then ``batch_size``
                says how many of each whole minibatch, all ranks together), or lists of lists
    sequential  what one process would take, beside your own; if not given, all samples in order, or
                shuffled as ``shuffle`` and ``seed`` say

    Raises SpecError for what cannot be dealt out.
    """
    if samplers is not None:
        return _own(samplers, samples, batch_size, sequential, shuffle, seed, epochs)
    order = _order(24 if samples is None else samples)
    size = 8 if batch_size is None else _whole("batch_size", batch_size)
    ranks, epochs = _whole("ranks", ranks), _whole("epochs", epochs)
    if sampler not in SAMPLERS:
        raise SpecError(f"sampler = {sampler!r}: it is {' or '.join(map(repr, SAMPLERS))}")
    if sequential is not None:
        raise SpecError("sequential = ... is for samplers of your own: samplers=[...]")
    if len(order) * epochs > MOST:
        raise SpecError(
            f"samples = {len(order)} in {counted(epochs, 'epoch')}: at most {MOST:,} are dealt out"
        )
    last_batch = drop_last if drop_last_batch is None else drop_last_batch
    if sampler == "workbench":
        if drop_last or last_batch:
            raise SpecError("drop_last = True: sampler='workbench' leaves no sample out")
        found = dealt(order, size, ranks, shuffle=shuffle, seed=seed, epochs=epochs)
    else:
        found = drawn(
            order, size, ranks, shuffle=shuffle, seed=seed, drop_last=drop_last,
            drop_last_batch=last_batch, set_epoch=set_epoch, epochs=epochs,
        )  # fmt: skip
    options = {
        "samples": len(order), "batch_size": size, "ranks": ranks, "shuffle": shuffle,
        "seed": seed, "drop_last": drop_last, "epochs": epochs, "sampler": sampler,
        "set_epoch": set_epoch,
    }  # fmt: skip
    return Partition(
        len(order), size, ranks, shuffle, drop_last, sampler, tuple(found), tuple(options.items())
    )


def _own(
    samplers: Sequence[Any], samples: Any, batch_size: int | None, sequential: Any, shuffle: bool,
    seed: int, epochs: int,
) -> Partition:  # fmt: skip
    """Of samplers of the user's."""
    from torch.utils.data import BatchSampler

    ranks, epochs = len(samplers), _whole("epochs", epochs)
    if not ranks:
        raise SpecError("samplers = []: one for each rank")
    each = None if batch_size is None else share(_whole("batch_size", batch_size), ranks)
    known = [n for n in map(_length, samplers) if n]
    parts = listened(samplers, each, sequential if sequential is not None else (), epochs, MOST)
    seen = [i for one in parts for ids in one.of for i in ids]
    if samples is not None:
        order: Sequence[int] = _order(samples)
    elif known:
        order = range(max(known))
    else:
        order = range(max(seen, default=0) + 1)
    size = batch_size or max((sum(map(len, one.of)) for one in parts), default=1)
    if sequential is None:
        alone = [
            BatchSampler(places(len(order), shuffle, seed + epoch), size, drop_last=False)
            for epoch in range(epochs)
        ]
        parts = [
            one
            for epoch, sampler in enumerate(alone)
            for one in _beside(sampler, order, parts, epoch, ranks)
        ]
    return Partition(len(order), size, ranks, shuffle, False, "own", tuple(parts))


def _beside(
    alone: Any, order: Sequence[int], parts: Sequence[Minibatch], epoch: int, ranks: int
) -> list[Minibatch]:
    """The epoch's parts with what one process takes beside them."""
    from workbench.partitions.minibatches import epoch_of

    own = [one for one in parts if one.epoch == epoch]
    of = [[one.of[rank] for one in own] for rank in range(ranks)]
    return epoch_of(epoch, [[order[place] for place in some] for some in alone], of)


def _length(given: Any) -> int:
    """Of the data set behind a sampler or a loader; 0 where it does not say."""
    for name in ("dataset", "data_source"):
        for one in (given, getattr(given, "sampler", None)):
            behind: Any = getattr(one, name, None)
            if hasattr(behind, "__len__"):
                return len(behind)
    return 0


def _order(samples: int | Sequence[int]) -> Sequence[int]:
    if isinstance(samples, Sequence):
        ids = [operator.index(i) for i in samples]
        if not ids or len(set(ids)) != len(ids) or min(ids) < 0:
            raise SpecError("samples = [...]: ids from 0 on, each once, one at least")
        return ids
    return range(_whole("samples", samples))


def _whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise SpecError(f"{name} = {value!r}: a whole number, 1 or more") from None
    if isinstance(value, bool) or number < 1:
        raise SpecError(f"{name} = {value!r}: a whole number, 1 or more")
    return number


def _explore(**options: Any) -> Any:
    """A partition with a slider for each number, in a notebook."""
    from workbench.views.explore import explore

    return explore(**options)


partition.explore = _explore  # type: ignore[attr-defined]
