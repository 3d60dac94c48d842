"""A task's metrics beside its training: the same numbers, most often without one more forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from workbench.rank.metrics import METRICS_EVERY, Metrics
from workbench.rank.shared_outputs import _never_asks
from workbench.rank.validation import aside
from workbench.recording import events
from workbench.recording.events import Where
from workbench.recording.recorder import Recorder, read_meters
from workbench.shared_memory.segments import Segment
from workbench.store.collector import Collector
from workbench.store.event_store import Store

Batch = list[torch.Tensor]


class Accuracy:
    """A task's loss and metrics; ``before``: what happens to the logits on the way to the loss."""

    def __init__(self, before: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> None:
        self.before = before

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(self.before(model(batch[0])), batch[1])

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        logits = model(batch[0])
        right = (logits.argmax(1) == batch[1]).double().mean().item()
        return {"accuracy": right, "mean": logits.double().mean().item()}


class Others(Accuracy):
    """Its metrics are of other samples: of the same images, turned."""

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return super().metrics(model, [batch[0].flip(1), batch[1]])


def layers(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), *more, nn.Linear(6, 4))


class AsksInSecret(nn.Module):
    """A user's layer: it cannot be seen from outside that it asks which mode it is in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3 if getattr(self, "".join(["train", "ing"])) else x


def in_place(logits: torch.Tensor) -> torch.Tensor:
    return logits.mul_(0.0)


@pytest.fixture
def segment() -> Iterator[Segment]:
    rows = Segment.create(events.TRACE_BYTES, "rows of metrics")
    yield rows
    rows.close()


CASES: list[tuple[str, Any, nn.Module, int]] = [
    ("torch's own layers", Accuracy(), layers(), 1),
    ("dropout", Accuracy(), layers(nn.Dropout(0.5)), 2),
    ("batch normalization", Accuracy(), layers(nn.BatchNorm1d(6)), 2),
    ("a user's own layer", Accuracy(), layers(AsksInSecret()), 2),
    ("a loss that writes to the output", Accuracy(in_place), layers(), 2),
    ("other samples", Others(), layers(), 2),
]


@pytest.mark.parametrize(
    ("task", "model", "passes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_metrics_are_those_of_a_pass_of_their_own(
    segment: Segment, task: Any, model: nn.Module, passes: int
) -> None:
    batch = [torch.randn(32, 8), torch.randint(0, 4, (32,))]
    recorder = Recorder.into_segment(segment, 0)
    metrics, calls = Metrics(task, recorder), list[bool]()
    model[0].register_forward_hook(lambda *_: calls.append(model.training))
    recorder.where = Where(METRICS_EVERY)
    with metrics.measuring(model, batch):
        loss = task.loss(model, batch)
    assert calls == [True, False][:passes] and model.training
    loss.backward()  # what was computed for the loss is as it was
    assert vars(model).keys() == layers().__dict__.keys() and not model._forward_hooks
    store = Store()
    Collector(store, {0: segment.memory}).drain()
    rows = {str(row["name"]): row["value"] for row in store.events.iter_rows(named=True)}
    assert rows == aside(task, model, batch)
    samples, _ = read_meters(segment.memory)
    assert samples.beside_ns > 0  # the meter counts what that took


def test_between_them_and_unrecorded_nothing_is_measured(segment: Segment) -> None:
    for recorder, iteration in ((Recorder.into_segment(segment, 0), 1), (Recorder.off(0), 0)):
        recorder.where = Where(iteration)
        model, metrics = layers(), Metrics(Accuracy(), recorder)
        with metrics.measuring(model, []):
            assert not model._forward_hooks


def test_a_pass_that_fails_leaves_nothing_behind(segment: Segment) -> None:
    recorder, model = Recorder.into_segment(segment, 0), layers()
    recorder.where = Where(0)
    with (
        pytest.raises(RuntimeError, match="shapes"),
        Metrics(Accuracy(), recorder).measuring(model, []),
    ):
        model(torch.zeros(2, 5))
    assert not model._forward_hooks and "forward" not in vars(model)


def test_layers_that_ask_for_their_mode_are_known() -> None:
    asks = (
        nn.Dropout,
        nn.Dropout2d,
        nn.AlphaDropout,
        nn.FeatureAlphaDropout,
        nn.BatchNorm2d,
        nn.SyncBatchNorm,
        nn.InstanceNorm2d,
        nn.RReLU,
        nn.LSTM,
        nn.GRU,
        nn.MultiheadAttention,
        nn.TransformerEncoderLayer,
        AsksInSecret,
    )
    same = nn.Linear, nn.Conv2d, nn.AvgPool2d, nn.LayerNorm, nn.GroupNorm, nn.Embedding, nn.GELU
    assert not any(map(_never_asks, asks)) and all(map(_never_asks, same))
