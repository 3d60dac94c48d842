"""What real ranks took: a page of a run is told the samples that they loaded, right or wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch.distributed as dist

import workbench as wb
from tests.live import lenet, of, until
from tests.page import Client
from tests.pairwise import first
from workbench.rank.batches import Minibatches, partition
from workbench.rank.samples_taken import Taken
from workbench.training.sampling.facts import MOST_IDS, MOST_MINIBATCHES
from workbench.views.pages.facts import facts
from workbench.views.pages.feed import feed


def samples(exp: wb.Experiment) -> tuple[dict[str, Any], wb.Run]:
    run = wb.run(exp)
    run.wait(timeout=90)
    return facts(run.store.metadata)["samples"], run


@pytest.mark.parametrize(("ranks", "batch_size"), first(1, [(2, 64), (3, 20), (5, 4), (8, 100)]))
def test_ranks_took_what_the_law_says(ranks: int, batch_size: int) -> None:
    sampling, run = samples(lenet(ranks=ranks, batch_size=batch_size, iterations=20))
    whole = Minibatches(sampling["n"], batch_size, 0)
    assert sampling["n"] == 1437 and len(sampling["minibatches"]) == 20 and sampling["more"] == 0
    for iteration, one in enumerate(sampling["minibatches"]):
        ids = whole.ids(iteration)
        assert one["sequential"] == ids.tolist()
        assert one["of"] == [partition(ids, rank, ranks).tolist() for rank in range(ranks)]
        assert not any(one["repeated"])
    # Beside what is told stands what the rows say: how many samples counted.
    rows = run.events.filter(run.events["name"] == "samples")
    counted = rows
    for iteration, rank, value in counted.select("iteration", "rank", "value").iter_rows():
        assert len(sampling["minibatches"][iteration]["of"][rank]) == value
    assert counted.height == sum(bool(ids) for one in sampling["minibatches"] for ids in one["of"])
    assert [
        law["name"]
        for law in sampling["laws"]
        if law["name"] == "same minibatches" and law["holds"]
    ]


def same_shard(job: Any, config: Any = None) -> None:
    """Every rank takes the first part of the minibatch."""
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = minibatch.ids[: len(minibatch.ids) // job.ranks]
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine))
        job.backward(loss)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(job.ranks)
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)


@pytest.mark.full
def test_the_same_shard_on_every_rank_is_seen() -> None:
    sampling, _ = samples(lenet(strategy=same_shard, ranks=3, batch_size=12, iterations=6))
    for one in sampling["minibatches"]:
        assert one["of"] == [one["sequential"][:4]] * 3
        assert one["repeated"] == [[], [0, 1, 2, 3], [0, 1, 2, 3]]
    (law,) = [law for law in sampling["laws"] if law["name"] == "same minibatches"]
    assert not law["holds"] and "6 of 6 minibatches differ" in law["words"]


def out_of_order(job: Any, config: Any = None) -> None:
    """Rank 0 takes four samples backwards, rank 1 four of another minibatch, rank 2 one twice."""
    model = job.model()
    whole = Minibatches(1437, 12, 0)
    for minibatch in job.iterations():
        mine = (minibatch.ids[3::-1], whole.ids(40)[:4], minibatch.ids[[5, 6, 6, 7]])[job.rank]
        job.backward(loss := job.forward(model, job.load(mine)))
        job.report(loss, len(mine))
    job.finish(model)


def test_parts_in_any_order_are_told_as_they_were() -> None:
    sampling, _ = samples(lenet(strategy=out_of_order, ranks=3, batch_size=12, iterations=3))
    whole = Minibatches(1437, 12, 0)
    assert len(sampling["minibatches"]) == 3
    for iteration, one in enumerate(sampling["minibatches"]):
        ids = whole.ids(iteration).tolist()
        assert one["of"] == [
            [ids[3], ids[2], ids[1], ids[0]],
            whole.ids(40)[:4].tolist(),
            [ids[5], ids[6], ids[6], ids[7]],
        ]


@pytest.mark.parametrize(
    "fields",
    first(
        1, [{"strategy": "ddp"}, {"strategy": "parameter_server", "options": {"shares": [1, 2]}}]
    ),
)
def test_what_is_kept_of_a_short_run_is_short(fields: dict[str, Any]) -> None:
    """Ids in full would be 20 KB: a fifth of a file of 8,000 events."""
    ranks = 2 if fields["strategy"] == "ddp" else 3
    sampling, run = samples(lenet(ranks=ranks, batch_size=64, iterations=70, **fields))
    assert len(sampling["minibatches"]) == MOST_IDS // 64
    text = [t for name, t in run.store.metadata.items() if name.startswith("samples ")]
    assert len(text) == 2 and max(map(len, text)) < 35 * MOST_IDS // 64


@pytest.mark.full
def test_workers_of_a_server_are_told_by_their_rank() -> None:
    sampling, _ = samples(
        lenet(strategy="parameter_server", ranks=4, iterations=5, options={"consistency": "asp"})
    )
    assert sampling["rank_of"] == [1, 2, 3] and len(sampling["minibatches"]) == 5


@pytest.mark.full
def test_no_more_is_told_than_a_page_holds() -> None:
    sampling, _ = samples(lenet(ranks=2, batch_size=200, iterations=21))
    assert len(sampling["minibatches"]) == MOST_IDS // 200 == 20 and sampling["more"] == 1
    sampling, _ = samples(lenet(ranks=2, batch_size=2, iterations=66))
    assert len(sampling["minibatches"]) == MOST_MINIBATCHES and sampling["more"] == 2


@pytest.mark.parametrize(
    "exp",
    first(
        1,
        [
            {"strategy": "sequential", "ranks": 1},
            {"strategy": "pipeline", "task": "char_transformer", "options": {"microbatches": 2}},
        ],
    ),
)
def test_where_minibatches_are_not_shared_out_nothing_is_told(exp: dict[str, Any]) -> None:
    sampling, _ = samples(lenet(iterations=2, **exp))
    assert sampling is None


@pytest.mark.full
def test_a_page_is_told_while_the_run_goes_on() -> None:
    """Rank 1 stands still until the page has heard of the first iterations."""
    freeze = wb.Freeze(rank=1, at_iteration=5, seconds=600)
    run, client = wb.run(lenet(iterations=2000, batch_size=8, faults=freeze)), Client()
    page = feed(run).join(client.send)
    try:
        page.hear({"type": "hello"})

        def samplings() -> list[dict[str, Any]]:
            return [h["run"]["samples"] for h in client.headers if h["run"].get("samples")]

        client.until(samplings)
        until(lambda: of(run.events, kind="fault", name="freeze").height, what="it is frozen")
        run.thaw(1)
        client.until(lambda: len(samplings()[-1]["minibatches"]) == MOST_MINIBATCHES)
        lengths = [len(one["minibatches"]) for one in samplings()]
        assert lengths == sorted(lengths) and lengths[0] < lengths[-1], "it grows"
        assert len(lengths) < len(client.headers), "it is told when it changes"
        assert samplings()[-1]["more"] == 2000 - MOST_MINIBATCHES
    finally:
        run.stop()
        run.wait(timeout=90)
        page.leave()


def test_an_iteration_that_is_done_again_is_told_again() -> None:
    """By fewer ranks, say: a rank was lost after this one had told what it took of iteration 3."""
    whole, words = Minibatches(40, 6, 0), list[dict[str, str]]()
    taken = Taken(0, whole, lenet(ranks=3, batch_size=6, iterations=100), words.append)
    for iteration in range(4):
        taken.load(iteration, whole.ids(iteration)[:2])
        taken.counts(iteration, 2)
    taken.abandon()
    taken.load(3, whole.ids(3)[:3])
    taken.counts(3, 3)
    parts = json.loads(words[-1]["samples 0"])
    assert [part["slice"] for part in parts] == [[0, 2, 1]] * 3 + [[0, 3, 1]]
