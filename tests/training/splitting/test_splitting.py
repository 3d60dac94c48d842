"""wb.split: the table of stages, and what a task calls its model with."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import workbench as wb
from tests.models import example
from workbench.experiment.optimizers import states
from workbench.studies.split import Split, split
from workbench.tasks import char_transformer, lenet_digits


@pytest.fixture(scope="module")
def lenet() -> Split:
    return wb.split("lenet_digits", stages=3, microbatch=4)


def test_the_table_has_a_row_a_stage(lenet: Split) -> None:
    table = str(lenet).splitlines()
    assert len(table) == 1 + 3 + 1
    assert table[0].split()[:3] == ["stage", "layers", "count"]
    assert [row.split()[0] for row in table[1:4]] == ["0", "1", "2"]
    assert sum(int(row[2]) for row in lenet.rows()) == 12
    assert "in equal numbers of layers" in table[-1]
    html = lenet._repr_html_()
    assert html.count("<tr>") == 4
    assert all(f'<td style="text-align:left">{row[1]}</td>' in html for row in lenet.rows())


def test_facts_are_plain_numbers_that_agree(lenet: Split) -> None:
    facts = json.loads(json.dumps(lenet.facts))
    assert [layer["stage"] for layer in facts["layers"]] == sorted(
        layer["stage"] for layer in facts["layers"]
    )
    for boundary in facts["cut"]:
        over = {a: n for a, b, n in facts["edges"] if a <= boundary["after"] < b}
        assert boundary["bytes"] == sum(over.values()) > 0
        assert len(boundary["values"]) == len(over)
    assert facts["edges"][0][:2] == [-1, 0]
    assert facts["largest_ms"]["chosen"] <= facts["largest_ms"]["equal"]


def test_an_experiment_brings_its_dtype_optimizer_and_limit() -> None:
    exp = wb.Experiment(
        strategy="data_parallel",
        task="lenet_digits",
        ranks=2,
        dtype="float64",
        optimizer="adam",
        memory_limit="3 MB",
    )
    both = split(exp, 2, microbatch=4)
    assert sum(layer.parameters for layer in both.profile.layers) == 61_706 * 8
    assert sum(both.memory) > 4 * 61_706 * 8  # gradients and two states besides
    assert max(both.memory) <= 3_000_000
    assert states(exp.optimizer, exp.momentum) == 2
    assert states("sgd", 0.9) == 1
    with pytest.raises(wb.SpecError, match="keeps every rank below 500 kB"):
        split(exp, 2, microbatch=4, memory_limit="500 kB")


def test_a_task_of_ones_own_and_nothing_else() -> None:
    named = split(char_transformer.Task(layers=1, width=8, heads=2), 2, ["head"], microbatch=2)
    assert named.cut.names == ("characters", "head")
    with pytest.raises(wb.SpecError, match="give an Experiment, the name of a task, or a task"):
        split(nn.Linear(2, 2))
    with pytest.raises(wb.SpecError, match="peaks has 1 numbers for 2 stages"):
        split("lenet_digits", 2, peaks=(1,))


def test_splitting_leaves_random_numbers_and_threads_alone() -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    split(lenet_digits.Task, 2, microbatch=2)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads


class WithNumber(lenet_digits.Task):
    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return model(batch[0], 2).sum()


def test_a_model_that_is_called_with_more_than_tensors_is_refused() -> None:
    with pytest.raises(wb.SpecError, match=r"calls the model with int: .* tensors only"):
        split(WithNumber(), 2)


def test_the_text_of_the_transformer() -> None:
    task = char_transformer.Task(layers=1, width=8, heads=2, context=16)
    train, validation = task.dataset("train"), task.dataset("validation")
    assert len(train) > 20_000 > len(validation) > 900
    now, following = train[5]
    assert torch.equal(now[1:], following[:-1])
    assert now.max() <= char_transformer.OTHER
    assert char_transformer.encode("\n ~é").tolist() == [0, 1, 95, char_transformer.OTHER]
    model, _ = example("transformer")
    text = torch.randint(97, (1, 12))
    changed = text.clone()
    changed[0, 6:] = 0
    assert torch.equal(model(text)[0, :6], model(changed)[0, :6])  # sees nothing of what follows
    written = task.write(task.model(), "for", 40)
    assert written.startswith("for") and len(written) == 43
    with pytest.raises(ValueError, match="heads divide width"):
        char_transformer.Task(width=10, heads=4)


@pytest.mark.full
def test_the_transformer_learns() -> None:
    torch.manual_seed(0)
    task = char_transformer.Task(layers=1, width=32, heads=2, context=32)
    model, data = task.model(), task.dataset("train")
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        batch = list(data[torch.randint(len(data), (16,)).tolist()])
        optimizer.zero_grad()
        task.loss(model, batch).backward()
        optimizer.step()
    metrics = task.metrics(model, list(task.dataset("validation")[:100]))
    assert metrics["bits"] < 5  # 6.6 before
    assert metrics["accuracy"] > 0.15


def test_an_experiment_with_a_pipeline_says_what_is_not_given() -> None:
    exp = wb.Experiment(
        strategy="pipeline",
        task="lenet_digits",
        ranks=3,
        batch_size=30,
        options={"schedule": "gpipe", "microbatches": 4, "split": ["3", "7"]},
    )
    planned = split(exp)
    assert planned.cut.names == ("0", "3", "7")
    assert planned.microbatch == 8 and planned.peaks == (4, 4, 4)
    other = split(exp, 2, how="layers")
    assert other.cut.names == ("0", "6") and other.peaks == (2, 1)


@pytest.mark.full
def test_plans_are_what_ranks_then_hold() -> None:
    """Also of a cut that a value crosses which is merely added behind it."""
    exp = wb.Experiment(
        strategy="pipeline",
        task="char_transformer",
        ranks=3,
        iterations=2,
        batch_size=32,
        task_options={"layers": 2, "width": 32, "context": 16},
        optimizer="adam",
        options={"split": ["blocks.0.feed_forward.2", "blocks.1.feed_forward.1"]},
    )
    planned = split(exp)
    arrived = planned.profile.held(*planned.cut.layers_of(1)) - planned.profile.activations(
        *planned.cut.layers_of(1)
    )
    assert (
        arrived == 4 * 16 * 32 * 4
    )  # samples, characters, width, bytes: what the block began with
    measured = wb.run(exp).wait(timeout=60).memory
    for stage, nbytes in enumerate(planned.memory):
        # The loss is not a layer's: log-probabilities and characters; and Adam counts its steps.
        more = 200 + (4 * 16 * (97 * 4 + 8) if stage == 2 else 0)
        assert 0 <= measured[stage] - nbytes <= more, f"stage {stage}"
