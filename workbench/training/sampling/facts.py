"""The facts about samples for a page, ``run.samples`` in its header; and the ranks' reports of
them.

A rank of a run keeps which samples it loaded in its first iterations, and tells them: the picture
is of what was loaded, whatever the strategy is, a user's own and a wrong one too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.rank.batches import Minibatches
from workbench.rank.samples_taken import KEY, MOST_IDS, MOST_MINIBATCHES, Part
from workbench.training.sampling.minibatches import epoch_of

if TYPE_CHECKING:
    from workbench.training.sampling.laws import Law
    from workbench.training.sampling.minibatches import Minibatch


def facts_of(
    minibatches: Sequence[Minibatch],
    *,
    samples: int,
    batch_size: int,
    ranks: int,
    drop_last: bool,
    shuffle: bool,
    sampler: str,
    laws: Sequence[Law],
) -> dict[str, Any]:
    entries, ids = list[dict[str, Any]](), 0
    for one in minibatches[:MOST_MINIBATCHES]:
        ids += max(len(one.sequential), sum(map(len, one.of)))
        if ids > MOST_IDS and entries:
            break
        entries.append(one.as_fact())
    return {
        "n": samples,
        "batch_size": batch_size,
        "ranks": ranks,
        "drop_last": drop_last,
        "shuffle": shuffle,
        "sampler": sampler,
        "minibatches": entries,
        "more": len(minibatches) - len(entries),
        "laws": [{"name": law.name, "holds": law.holds, "words": law.words} for law in laws],
    }


def _in_full(part: Part, whole: list[int]) -> list[int]:
    return whole[slice(*part["slice"])] if isinstance(part, dict) else part or []


def sample_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return what ranks have published of their samples so far."""
    return {name: text for name, text in dict(metadata).items() if name.partition(" ")[0] == KEY}


def run_facts(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the page's run.samples of a run; None while nothing is known.

    Also None where ranks do not share minibatches, or their size goes with the ranks. Only
    iterations known from every rank count.
    """
    metadata = sample_metadata(metadata)
    if KEY not in metadata:
        return None
    from workbench.training.sampling.laws import laws

    what = json.loads(metadata[KEY])
    if what.get("scaled"):
        return None
    whole = Minibatches(what["n"], what["batch_size"], what["seed"], buffer=what.get("buffer"))
    took: dict[int, list[Part]] = {
        int(name.split()[1]): json.loads(text) for name, text in metadata.items() if name != KEY
    }
    ranks, known = sorted(took), min(map(len, took.values()), default=0)
    minibatches: list[Minibatch] = []
    for first in range(0, known, whole.per_epoch):
        numbers = range(first, min(known, first + whole.per_epoch))
        alone = [whole.ids(i).tolist() for i in numbers]
        of = [
            [_in_full(took[rank][i], ids) for i, ids in zip(numbers, alone, strict=True)]
            for rank in ranks
        ]
        minibatches += epoch_of(first // whole.per_epoch, alone, of)
    if not minibatches:
        return None
    judged = [
        law for law in laws(minibatches, whole.samples, len(ranks), shuffled=True)
        if law.name in ("same minibatches", "parts of one size")
    ]  # fmt: skip  # the others are of whole epochs
    result = facts_of(
        minibatches,
        samples=whole.samples,
        batch_size=whole.batch_size,
        ranks=len(ranks),
        drop_last=False,
        shuffle=True,
        sampler="run",
        laws=judged,
    )
    return result | {
        "more": max(0, what["iterations"] - len(result["minibatches"])),
        "rank_of": ranks,
    }
