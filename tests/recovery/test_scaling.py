"""The minibatch goes with the number of ranks, and the learning rate with it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.live import lenet, training, until
from tests.recovery.lasting import ended, generations, wait_for
from tests.recovery.test_elastic import lasting
from workbench.rank.batches import Minibatches
from workbench.rank.placement import collate, move_batch
from workbench.rank.warm_up import samples_of
from workbench.user_code.source import load

BATCH = 18
LOGGED = 64  # iterations at first, of which ranks tell what they took


@given(
    st.integers(1, 50),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=5),
)
def test_however_sizes_change_an_epoch_has_each_sample_once(
    samples: int, batch_size: int, changes: list[tuple[int, int]]
) -> None:
    sizes = sorted(dict(changes).items())
    one = Minibatches(samples, batch_size, 3, sizes)
    plain, order = Minibatches(samples, samples, 3), list[int]()
    for iteration in range(60):
        ids = one.ids(iteration)
        full_size = next((s for first, s in reversed(sizes) if first <= iteration), batch_size)
        left = samples - len(order) % samples
        assert len(ids) == one.size(iteration) == min(full_size, left)
        order += ids.tolist()
    for epoch in range(len(order) // samples):
        own = order[epoch * samples : (epoch + 1) * samples]
        assert own == plain.ids(epoch).tolist(), "the order that one process has"


def logged(run: wb.Run) -> list[np.ndarray]:
    """Return the samples that all ranks took, by iteration, as far as they have told."""
    facts = json.loads(run.store.metadata["samples"])
    base, result = Minibatches(facts["n"], facts["batch_size"], facts["seed"]), []
    texts = [run.store.metadata.get(f"samples {rank}", "[]") for rank in run.pids]
    parts = [json.loads(text) for text in texts]
    for iteration in range(max(map(len, parts))):
        whole, ids = base.ids(iteration), list[int]()
        for part in [each[iteration] for each in parts if len(each) > iteration]:
            ids += whole[slice(*part["slice"])].tolist() if isinstance(part, dict) else part or []
        result.append(np.array(ids))
    return result


def replay(exp: wb.Experiment, minibatches: list[np.ndarray]) -> list[float]:
    """Train in this process on these samples, at a rate in proportion to their number."""
    task = load("tasks", exp.task, "Task")()
    torch.manual_seed(exp.seed)
    model, data = task.model().to(torch.float64), samples_of(task, "train")
    optimizer, losses = torch.optim.SGD(model.parameters(), momentum=exp.momentum), list[float]()
    for ids in minibatches:
        batch = move_batch(collate(data, ids), torch.device("cpu"), torch.float64)
        optimizer.param_groups[0]["lr"] = exp.learning_rate * len(ids) / exp.batch_size
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["data_parallel", pytest.param("ddp", marks=pytest.mark.full)])
def test_losses_are_those_of_a_replay_over_the_logged_samples(strategy: str) -> None:
    fields: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.5, "batch_size": BATCH}
    kill = wb.Kill(rank=1, at_iteration=4)
    run = wb.run(lasting(strategy, 3, scale_batch=True, faults=kill, pad_compute="20 ms", **fields))
    wait_for(run, 1)
    run.pause()  # so that the newcomer comes soon, however busy the machine is
    run.add_rank()
    until(lambda: run._regrouping.table.waiting, 60, "it is there")
    run.resume()
    until(lambda: run.done or run.iteration > LOGGED + 1, 60, "all has been logged")
    result = ended(run)
    assert len(set(result.digests.values())) == 1 and set(result.digests) == {0, 1, 2}
    first, second = (one.iteration for one in generations(run))
    samples = logged(run)
    assert len(samples) == LOGGED and second < LOGGED - 8, "so has what the newcomer took"
    numbers = [2 * BATCH // 3 if first <= i < second else BATCH for i in range(len(samples))]
    assert [*map(len, samples)] == numbers
    counts = Counter(np.concatenate(samples).tolist())
    assert max(counts.values()) == 1, "within the first epoch no sample twice"
    expected = replay(run.experiment, samples)
    assert result.losses[:LOGGED] == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.full
def test_a_checkpoint_says_how_large_minibatches_were(tmp_path: Path) -> None:
    """The run that goes on takes the samples that follow, whatever their minibatches' sizes."""
    plan = wb.Checkpoint(folder=str(tmp_path / "checkpoints"), every=3)
    kill = wb.Kill(rank=1, at_iteration=4)
    fields: dict[str, Any] = {"momentum": 0.5, "batch_size": BATCH, "dtype": "float64"}
    exp = lenet(ranks=3, iterations=8, scale_batch=True, recovery="shrink", **fields)
    before = wb.run(exp.replace(checkpoint=plan, faults=kill))
    assert before.wait(timeout=90).ok
    more = exp.replace(resume=plan.folder, iterations=14)
    with pytest.raises(wb.SpecError, match="written with scale_batch=True"):
        wb.run(more.replace(scale_batch=False))
    lost = wb.Kill(rank=0, at_iteration=11)
    run = wb.run(more.replace(faults=lost))
    result = run.wait(timeout=90)
    smaller = 2 * BATCH // 3
    sizes = [(0, BATCH), (4, smaller), (8, BATCH), (11, smaller)]
    facts = json.loads(run.store.metadata["samples"])
    order = Minibatches(facts["n"], BATCH, exp.seed, sizes)
    samples = [order.ids(iteration) for iteration in range(14)]
    expected = replay(run.experiment, samples)
    assert before.result.losses == pytest.approx(expected[:8], rel=1e-12, abs=1e-12)
    # A checkpoint has no losses of a rank that was lost before it.
    assert result.losses[4:] == pytest.approx(expected[4:], rel=1e-12, abs=1e-12)


@pytest.mark.full
def test_without_the_option_the_minibatch_stays() -> None:
    run = wb.run(lasting("data_parallel", 2, batch_size=BATCH))
    training(run, 2)
    run.remove_rank(1)
    wait_for(run, 1)
    until(lambda: run.done or run.iteration > LOGGED + 1, 60, "all has been logged")
    ended(run)
    after = logged(run)[generations(run)[0].iteration :]
    assert len(after) > 8 and {*map(len, after)} == {BATCH}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"strategy": "parameter_server", "ranks": 3}, "does not go with parameter_server"),
        ({"recovery": "abort"}, "scale_batch is for ranks that come and go. ranks come and go"),
        ({"strategy": "fsdp"}, "takes something along that no other has"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**{"recovery": "shrink", "scale_batch": True, **fields})
