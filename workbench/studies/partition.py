"""``wb.partition``: which sample goes to which rank in which minibatch, seen and judged.

wb.partition(24, batch_size=8, ranks=2)                 torch's DistributedSampler, in order
wb.partition(10, 4, 4, shuffle=True, epochs=2)          it repeats two samples: which?
wb.partition(samplers=[mine(rank) for rank in range(4)])   your own samplers or DataLoaders
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Count, Number, Ranks, Reals, Seed, Text, checked
from workbench.common.errors import SpecError
from workbench.common.units import counted
from workbench.studies.samplers import (
    MOST,
    SAMPLERS,
    OwnSamplers,
    order_of,
    read_samplers,
    whole,
)
from workbench.training.sampling.laws import Averages, Law, averages, laws
from workbench.training.sampling.minibatches import Minibatch, dealt, drawn, share

if TYPE_CHECKING:
    import polars as pl


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
        """Whether the ranks' minibatches together equal those of one process, every one of them."""
        return all(one.equal for one in self.minibatches)

    def laws(self) -> list[Law]:
        """Return the laws, and whether each holds.

        They are: the same minibatches, every sample once, shares of one size, equally many on every
        rank, another order each epoch.
        """
        each, m, p = share(self.batch_size, self.ranks), self.batch_size, self.ranks
        why = f"{m} does not divide by {p}, so each rank takes {each} of it"
        uneven = self.sampler == "distributed" and m != each * p
        return laws(self.minibatches, self.samples, p, self.shuffle, why if uneven else "")

    @property
    def words(self) -> str:
        """The result in a sentence or two."""
        wrong = [law for law in self.laws() if not law.holds]
        deal = (
            f"{counted(self.samples, 'sample')} in {counted(len(self.minibatches), 'minibatch')} "
        )
        deal += f"over {counted(self.ranks, 'rank')}"
        if not wrong:
            return f"{deal}: what one process takes, each sample once."
        return f"{deal}: {wrong[0].words}."

    @checked
    def averages(self, values: Reals, epoch: Number = 0) -> Averages:
        """Return the means of ``values``, one per sample by id, over an ``epoch``.

        Their mean with each sample once, as ranks sum it up, and as the mean of the ranks' means.
        Raises SpecError for too few values, or if there is no such epoch.
        """
        if len(values) < self.samples:
            raise SpecError(
                f"{counted(len(values), 'value')} for {counted(self.samples, 'sample')}: one each"
            )
        of_epoch = [one for one in self.minibatches if one.epoch == epoch]
        if not of_epoch:
            raise SpecError(f"there is no epoch {epoch} in this partition")
        return averages(
            values, [[i for one in of_epoch for i in one.of[r]] for r in range(self.ranks)]
        )

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
        schema = {
            "epoch": pl.Int32,
            "minibatch": pl.Int32,
            "rank": pl.Int32,
            "position": pl.Int32,
            "sample": pl.Int64,
            "repeated": pl.Boolean,
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for the page's run.samples."""
        from workbench.training.sampling.facts import facts_of

        return facts_of(
            self.minibatches,
            samples=self.samples,
            batch_size=self.batch_size,
            ranks=self.ranks,
            drop_last=self.drop_last,
            shuffle=self.shuffle,
            sampler=self.sampler,
            laws=self.laws(),
        )

    def explore(self) -> Any:
        """Return this partition in a notebook with a slider for each number."""
        from workbench.studies.partition_explorer import explore

        return explore(partition, dict(self.options))

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
                texts = (f"({i})" if at in again else str(i) for at, i in enumerate(ids))
                lines.append(f"    rank {rank}: {' '.join(texts) or '-'}")
        if any(any(one.repeated) for one in self.minibatches):
            lines.append("(in brackets: taken before in this epoch)")
        for law in self.laws():
            lines.append(f"{'holds' if law.holds else 'does not hold'}: {law.name}: {law.words}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Partition: {self.words}>"

    def _repr_html_(self) -> str:
        """Return a still picture, and the laws."""
        from workbench.front_end.html_picture import image
        from workbench.views.stills.svg_samples import svg

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
            from workbench.views.jupyter import ModelStage
        except ModuleNotFoundError:
            return {"text/plain": str(self), "text/html": self._repr_html_()}
        from workbench.views.pages.samples_page import samples_page

        page = samples_page(self.facts, self.words)
        return ModelStage(page, repr(self), self._repr_html_())._repr_mimebundle_(**options)


@checked
def partition(
    samples: int | Sequence[int] | None = None,
    batch_size: Count | None = None,
    ranks: Ranks = 2,
    *,
    shuffle: bool = False,
    seed: Seed = 0,
    drop_last: bool = False,
    drop_last_batch: bool | None = None,
    set_epoch: bool | None = None,
    epochs: Count = 1,
    sampler: Text = "distributed",
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
    set_epoch   call set_epoch(epoch) before each epoch; if not given, samplers of your own are
                left alone, and torch's are told
    epochs      how many are dealt out
    sampler     "distributed": torch's DistributedSampler and BatchSampler; "workbench": as runs
    samplers    your own, one a rank: DataLoaders, batch samplers, samplers (then ``batch_size``
                says how many of each whole minibatch, all ranks together), or lists of lists
    sequential  what one process would take, beside your own; if not given, all samples in order, or
                shuffled as ``shuffle`` and ``seed`` say

    Raises SpecError for what cannot be dealt out.

    >>> print(wb.partition(samples=24, batch_size=8, ranks=2, shuffle=True))
    """
    if samplers is not None:
        given = (samples, batch_size, sequential, shuffle, seed, epochs)
        return _of_own(OwnSamplers(samplers, *given, bool(set_epoch)))
    order = order_of(24 if samples is None else samples)
    size = 8 if batch_size is None else whole("batch_size", batch_size)
    last_batch = drop_last if drop_last_batch is None else drop_last_batch
    options: dict[str, Any] = {
        "samples": len(order),
        "batch_size": size,
        "ranks": whole("ranks", ranks),
        "shuffle": shuffle,
        "seed": seed,
        "drop_last": drop_last,
        "epochs": whole("epochs", epochs),
        "sampler": sampler,
        "set_epoch": set_epoch is None or set_epoch,
    }
    if sequential is not None:
        raise SpecError("sequential = ... is for samplers of your own: samplers=[...]")
    return _dealt_out(order, options, last_batch)


def _of_own(own: OwnSamplers) -> Partition:
    """Return the partition that a user's samplers deal out. Raises SpecError."""
    read = read_samplers(own)
    count, size = len(read.order), read.batch_size
    return Partition(count, size, read.ranks, own.shuffle, False, "own", read.minibatches)


def _dealt_out(order: Sequence[int], options: dict[str, Any], drop_last_batch: bool) -> Partition:
    """Return the partition that ``options`` describe. Raises SpecError."""
    return Partition(
        len(order),
        options["batch_size"],
        options["ranks"],
        options["shuffle"],
        options["drop_last"],
        options["sampler"],
        _deal(order, options, drop_last_batch),
        tuple(options.items()),
    )


def _deal(
    order: Sequence[int], options: dict[str, Any], drop_last_batch: bool
) -> tuple[Minibatch, ...]:
    """Return the minibatches that ``options["sampler"]`` deals out. Raises SpecError."""
    arguments = {name: value for name, value in options.items() if name != "samples"}
    sampler, epochs = arguments.pop("sampler"), options["epochs"]
    size, ranks = arguments.pop("batch_size"), arguments.pop("ranks")
    if sampler not in SAMPLERS:
        raise SpecError(f"sampler = {sampler!r}: must be {' or '.join(map(repr, SAMPLERS))}")
    if len(order) * epochs > MOST:
        raise SpecError(
            f"samples = {len(order)} in {counted(epochs, 'epoch')}: at most {MOST:,} are dealt out"
        )
    if sampler == "distributed":
        return tuple(drawn(order, size, ranks, drop_last_batch=drop_last_batch, **arguments))
    if options["drop_last"] or drop_last_batch:
        raise SpecError("drop_last = True: sampler='workbench' leaves no sample out")
    return tuple(
        dealt(
            order, size, ranks, shuffle=arguments["shuffle"], seed=arguments["seed"], epochs=epochs
        )
    )


def _explore(**options: Any) -> Any:
    """Return a partition with a slider for each number, for a notebook."""
    from workbench.studies.partition_explorer import explore

    return explore(partition, options)


partition.explore = _explore  # type: ignore[attr-defined]
