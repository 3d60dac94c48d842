"""Stages are the model: the same outputs and gradients wherever it is cut."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

from tests.models import MODELS, example
from workbench.common.errors import SpecError
from workbench.training.splitting.cut import Cut
from workbench.training.splitting.sliced import hollow, shapes, stage_module
from workbench.training.splitting.traced import Traced, trace


def cut_at(traced: Traced, *boundaries: int) -> Cut:
    starts = (0, *(boundary + 1 for boundary in boundaries))
    return Cut(starts, len(traced.layers), tuple(traced.names[i] for i in starts))


def boundaries(traced: Traced) -> list[int]:
    return [i for i, refusal in enumerate(traced.refusals()) if refusal is None]


def tensors(value: object) -> list[torch.Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def run_stages(stages: list[nn.Module], args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Forward and backward as ranks do it: copies cross the boundaries, gradients come back."""
    crossed, values = [], args
    for stage in stages[:-1]:
        sent = stage(*values)
        values = tuple(v.detach().clone().requires_grad_(v.requires_grad) for v in sent)
        crossed.append((sent, values))
    outputs = tensors(stages[-1](*values))
    sum(v.square().mean() for v in outputs).backward()
    for sent, received in reversed(crossed):
        pairs = [(s, r.grad) for s, r in zip(sent, received, strict=True) if s.requires_grad]
        torch.autograd.backward([s for s, _ in pairs], [g for _, g in pairs])
    return outputs


@pytest.mark.parametrize("stages", [1, 2, 3, 0], ids=["1", "2", "3", "most"])
@pytest.mark.parametrize("name", MODELS)
def test_stages_give_what_the_unsplit_model_gives(name: str, stages: int) -> None:
    model, args = example(name)
    whole = copy.deepcopy(model)
    expected = tensors(whole(*args))
    sum(v.square().mean() for v in expected).backward()

    traced = trace(model, len(args))
    inner = boundaries(traced)
    assert len(inner) >= 2
    every = len(inner) // stages if stages else 1
    chosen = inner if not stages else inner[every - 1 :: every][: stages - 1]
    cut = cut_at(traced, *chosen)
    modules = [stage_module(traced, cut, i) for i in range(cut.stages)]
    outputs = run_stages(modules, args)

    for mine, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    named = [pair for module in modules for pair in module.named_parameters()]
    assert sorted(n for n, _ in named) == sorted(n for n, _ in model.named_parameters())
    theirs = dict(whole.named_parameters())
    for key, parameter in named:
        assert parameter is model.get_parameter(key)
        if theirs[key].grad is None:
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, theirs[key].grad, rtol=1e-10, atol=1e-12)
    states = [key for module in modules for key in module.state_dict()]
    assert sorted(states) == sorted(model.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_shapes_are_those_of_any_microbatch(name: str) -> None:
    model, args = example(name, samples=3)
    traced = trace(model, len(args))
    cut = cut_at(traced, *boundaries(traced))
    metas = shapes(hollow(traced), cut, args)
    values = args
    for stage in range(cut.stages - 1):
        values = stage_module(traced, cut, stage)(*values)
        assert [(v.shape, v.dtype, v.requires_grad) for v in metas[stage]] == [
            (v.shape, v.dtype, v.requires_grad) for v in values
        ]
        assert all(v.is_meta for v in metas[stage])


def test_a_stage_keeps_nothing_of_the_others() -> None:
    model, args = example("transformer")
    traced = trace(model)
    cut = cut_at(traced, *boundaries(traced)[9::10])
    mine = stage_module(traced, cut, 1)
    shaped = hollow(traced)
    kept = {name for name, _ in mine.named_parameters()}
    watched = {name: weakref.ref(p) for name, p in model.named_parameters()}
    del traced, model
    gc.collect()
    assert {name for name, ref in watched.items() if ref() is not None} == kept
    assert shapes(shaped, cut, args)[0][0].shape[0] == len(args[0])


def test_whole_numbers_cross_without_a_gradient() -> None:
    model, args = example("pair")
    traced = trace(model, 2)
    boundary = next(i for i in boundaries(traced) if "names" in traced.crossing(i))
    [values] = shapes(traced, cut_at(traced, boundary), args)
    crossing = dict(zip(traced.crossing(boundary), values, strict=True))
    assert crossing["names"].dtype == torch.int64
    assert not crossing["names"].requires_grad


def test_a_boundary_that_no_tensor_can_cross_is_refused_when_shapes_are_asked() -> None:
    model, args = example("pair")
    traced = trace(model, 2)
    tuples = traced.names.index("memory")
    split_before_unpacked = Traced(
        model,
        traced.graph,
        (
            *traced.layers[:tuples],
            *(  # the tuple that the GRU gives, parted from its unpacking
                type(traced.layers[0])(name, "", (name,), ())
                for name in traced.layers[tuples].nodes
            ),
            *traced.layers[tuples + 1 :],
        ),
        traced.inputs,
    )
    with pytest.raises(SpecError, match="'memory' that crosses it is a tuple"):
        shapes(split_before_unpacked, cut_at(split_before_unpacked, tuples), args)
