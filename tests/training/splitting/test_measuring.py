"""What is measured of layers: bytes that can be counted by hand, times that follow the work."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import torch
from torch import nn

from tests.models import MODELS, example
from tests.pairwise import first
from workbench.rank.memory import Memory
from workbench.training.splitting.cut import choose
from workbench.training.splitting.measuring import measure
from workbench.training.splitting.profiled import Profile
from workbench.training.splitting.sliced import slice_module
from workbench.training.splitting.traced import trace


def profile_of(name: str, samples: int = 4) -> Profile:
    model, args = example(name, samples)
    return measure(trace(model, len(args)), args, repeats=2)


def test_bytes_of_lenet() -> None:
    layers = profile_of("lenet", samples=2).layers
    images, first = 2 * 28 * 28 * 8, 2 * 6 * 28 * 28 * 8  # float64
    assert [(one.parameters, one.output) for one in layers[:2]] == [(156 * 8, first), (0, first)]
    assert layers[0].activations == images  # a convolution keeps its input,
    assert layers[1].activations == first  # tanh its output,
    assert layers[2].activations == 0  # and pooling its input: that very output
    assert layers[2].kept == layers[1].kept
    assert sum(one.parameters for one in layers) == 61_706 * 8


@pytest.mark.parametrize("name", first(1, MODELS))
def test_activations_are_what_training_is_measured_to_hold(name: str) -> None:
    """Of both parts of the model wherever it is cut, against what rank/memory.py counts."""
    model, args = example(name)
    traced = trace(model, len(args))
    profile = measure(traced, args, repeats=2)
    last = len(profile.layers) - 1
    buffers = sum(buffer.nbytes for buffer in model.buffers())  # kept once, not by microbatch
    for boundary in (i for i, refusal in enumerate(profile.refusals) if refusal is None):
        sent, held = counted(slice_module(traced, 0, boundary), args)
        assert held == pytest.approx(profile.activations(0, boundary), abs=buffers)
        received = tuple(v.detach().clone().requires_grad_(v.requires_grad) for v in sent)
        _, held = counted(slice_module(traced, boundary + 1, last), received)
        assert held == pytest.approx(profile.activations(boundary + 1, last), abs=buffers)


def counted(stage: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[Any, int]:
    memory = Memory(0)
    memory.watch(stage.parameters())
    with memory.counting():
        output = stage(*args)
    return output, memory.activations


def test_values_are_those_that_cross() -> None:
    profile = profile_of("pair")
    names = {v.name: v for v in profile.values}
    assert names["names"].maker == -1 and not names["names"].gradient
    assert names["names"].nbytes == 4 * 5 * 8
    mixed = profile.names.index("mix")
    assert {v.name for v in profile.crossing(mixed)} >= {"names", "getitem", "getitem_1"}


def test_measuring_changes_nothing() -> None:
    model, args = example("skips")
    model.first.weight.grad = torch.ones_like(model.first.weight)
    before, state = copy.deepcopy(model), torch.random.get_rng_state()
    measure(trace(nn.Sequential(model, nn.Dropout(0.5))), args, repeats=2)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before.state_dict()[key]), key
    assert torch.equal(model.first.weight.grad, torch.ones_like(model.first.weight))
    assert model.last.weight.grad is None
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.alone
def test_times_follow_the_work() -> None:
    model = nn.Sequential(nn.Linear(64, 2048), nn.Linear(2048, 2048), nn.Linear(2048, 4))
    small, large, _ = measure(trace(model), (torch.randn(64, 64),), repeats=50).layers
    assert large.forward_s > 4 * small.forward_s  # 32 times the multiplications
    assert large.backward_s > 4 * small.backward_s
    assert large.backward_s > large.forward_s


@pytest.mark.full
def test_what_holds_up_the_machine_for_a_moment_is_in_no_layer_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A third of a second on two cores that others use too: as long as 40 layers take."""
    calm, began = nn.Tanh.forward, 0.0

    def held_up(self: nn.Tanh, x: torch.Tensor) -> torch.Tensor:
        nonlocal began
        began = began or time.monotonic()
        if time.monotonic() - began < 0.3:
            time.sleep(0.02)
        return calm(self, x)

    monkeypatch.setattr(nn.Tanh, "forward", held_up)
    layers = [layer for _ in range(20) for layer in (nn.Linear(256, 256), nn.Sigmoid())]
    model = nn.Sequential(*layers[:20], nn.Tanh(), *layers[20:])
    profile = measure(trace(model), (torch.randn(512, 256),))
    tanh = next(one for one in profile.layers if one.op.endswith("Tanh"))
    assert tanh.forward_s < 0.01
    assert choose(profile, 2).largest_s < 0.7 * profile.seconds


def test_the_loss_is_the_last_layer_s() -> None:
    model, args = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1000)), (torch.randn(64, 8),)
    labels = torch.zeros(64, dtype=torch.int64)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, labels)

    without = measure(trace(model), args, repeats=2)
    profile = measure(trace(model), args, loss=loss, repeats=2)
    assert profile.layers[0].kept == without.layers[0].kept
    more = profile.activations(0, 1) - without.activations(0, 1)
    assert more == pytest.approx(64 * 1000 * 4 + labels.nbytes, abs=8)  # log-probabilities

    class Whole(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return loss(super().forward(x))

    assert counted(Whole(model), args)[1] == pytest.approx(profile.activations(0, 1), abs=8)
