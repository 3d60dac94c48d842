"""Models of many shapes, split: which layers are, and that each learns on 2 and 3 ranks what it
does unsplit.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from tests.processes import values
from tests.training.tensor_parallel.models import MODELS, TABLE
from workbench.process_group.session import session
from workbench.training.tensor_parallel.layers import Ranks
from workbench.training.tensor_parallel.model import shard
from workbench.training.tensor_parallel.plan import Plan
from workbench.training.tensor_parallel.planning import plan
from workbench.training.tensor_parallel.tokens import by_tokens

SEQUENCES = ["chunk", "split", "three layers", "gated"]


def letters(split: Plan) -> str:
    """A letter a layer, as above."""
    return "".join(
        "." if one.how == "whole" else one.how[0].upper() if one.gathered else one.how[0]
        for one in split.layers
    )


def learned(rank: int, size: int, name: str, tokens: bool) -> dict[str, Any]:
    """The furthest that outputs, gradients and running means of the split model are from those of
    the unsplit one, and what it was split into; and the same outside of training.
    """
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    make, x, _ = MODELS[name]
    x = x.double() if x.is_floating_point() else x
    whole = make()
    for each in whole.parameters():
        nn.init.normal_(each, std=0.5)
    split = plan(copy.deepcopy(whole), (x,), size)
    changes = None
    if tokens:
        split, changes = by_tokens(split)
    text = letters(split)
    parallel = shard(split, Ranks(rank, size, None, session().label), changes)
    outputs = []
    for model in (whole, parallel.model):
        torch.manual_seed(6)  # of what dropout drops
        outputs.append(model(x))
        (outputs[-1].square().mean() + outputs[-1].sum() / 100).backward()
    for each in parallel.partial:
        torch.distributed.all_reduce(parallel.model.get_parameter(each).grad)
    far = [(outputs[0] - outputs[1]).abs().max().item()]
    expected = dict(whole.named_parameters())
    for each, parameter in parallel.model.named_parameters():  # each that the model uses
        gradient, cut = expected[each].grad, parallel.split.get(each)
        gradient = gradient if cut is None else parallel.ranks.part(gradient, cut)
        far.append((gradient - parameter.grad).abs().max().item())
    again = {**parallel.rest, **parallel.assembled(parallel.model.state_dict())}
    assert again.keys() == whole.state_dict().keys()
    for key, value in whole.state_dict().items():
        far.append((value.double() - again[key].double()).abs().max().item())
    whole.eval(), parallel.model.eval()
    with torch.no_grad():
        far.append((whole(x) - parallel.model(x)).abs().max().item())
    return {"far": max(far), "letters": text, "parameters": len(again)}


def all_learned(rank: int, size: int, names: list[str], tokens: bool) -> dict[str, Any]:
    return {name: learned(rank, size, name, tokens) for name in names}


@cache
def everywhere(size: int, tokens: bool) -> list[dict[str, Any]]:
    """By rank: what each of the models has learned."""
    return values(all_learned, size, SEQUENCES if tokens else [*MODELS], tokens)


@pytest.mark.parametrize("size", first(1, [2, 3]))
@pytest.mark.parametrize("name", MODELS)
def test_a_split_model_learns_what_the_whole_one_does(name: str, size: int) -> None:
    for of_rank in everywhere(size, False):
        assert of_rank[name]["far"] < 1e-9
        assert size > 2 or of_rank[name]["letters"] == MODELS[name][2]


@pytest.mark.parametrize("size", first(1, [3, 2]))
@pytest.mark.parametrize("name", SEQUENCES)
def test_so_it_does_with_its_sequence_split(name: str, size: int) -> None:
    assert all(of_rank[name]["far"] < 1e-9 for of_rank in everywhere(size, True))


# -- the plan --


def planned(name: str, ranks: int) -> Plan:
    make, x, _ = MODELS[name]
    return plan(make(), (x,), ranks)


def test_heads_stay_whole_where_they_do_not_divide() -> None:
    words = {one.name: split.words(one) for split in [planned("chunk", 3)] for one in split.layers}
    assert words["1.inner.qkv"] == "column: 72 outputs, 36, 18, 18"
    assert words["1.inner.out"] == "row: 24 inputs, 12, 6, 6"
    assert words["4"] == "column: 30 outputs, 10 each, then gathered"


def test_a_rank_has_the_same_heads_of_queries_keys_and_values() -> None:
    cut = planned("chunk", 2).split["1.inner.qkv.weight"]
    assert cut.places(1, 2).tolist() == [*range(12, 24), *range(36, 48), *range(60, 72)]


def test_what_has_too_few_outputs_is_whole_and_says_so() -> None:
    split = planned("lenet", 8)
    assert letters(split) == ".crcr"
    assert "0" in str(split) and "whole on every rank: 6 outputs for 8 ranks" in str(split)
    assert letters(planned("chunk", 5)) == "..CC.cr.C"  # 4 heads do not go to 5 ranks


def test_every_layer_that_is_whole_says_why() -> None:
    words = {
        name: " | ".join(split.words(one) for one in split.layers if one.how == "whole")
        for name in ("tied", "grouped", "shared layer")
        for split in [planned(name, 2)]
    }
    assert "embedding.weight and head.weight are one parameter" in words["tied"]
    assert "a convolution in 2 groups" in words["grouped"]
    assert "it is called more than once" in words["shared layer"]


def test_more_ranks_than_any_layer_has_outputs_are_refused() -> None:
    with pytest.raises(wb.SpecError, match=r"(?s)ranks = 121.*120 outputs for 121 ranks"):
        planned("lenet", 121)
    with pytest.raises(wb.SpecError, match="ranks = 121"):  # before any process starts
        wb.run(lenet(strategy="tensor_parallel", ranks=121))


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.linear(x), 0.1, self.training)


def test_what_a_trace_would_get_wrong_is_refused() -> None:
    with pytest.raises(wb.SpecError, match=r"dropout as a function.*nn\.Dropout"):
        plan(Dropped(), (TABLE,), 2)


def test_a_sequence_must_be_there_to_be_split() -> None:
    with pytest.raises(wb.SpecError, match=r"sequence_parallel = True.*leave it out"):
        by_tokens(planned("lenet", 2))
