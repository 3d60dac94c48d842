"""A batch as bytes and back, whatever its nesting; what cannot travel is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from workbench.common.errors import WorkbenchError
from workbench.training.data_servers.form import Form

BATCHES: list[Any] = [
    [torch.randn(5, 1, 3, 3), torch.arange(5)],
    {"x": torch.randn(5, 2, dtype=torch.float64), "y": (torch.ones(5, dtype=torch.bool),)},
    torch.arange(5, dtype=torch.uint8),
    [torch.randn(5, 0, 3), torch.randn(5, 2).half(), torch.randn(5, 3, dtype=torch.bfloat16)],
]


@pytest.mark.parametrize("batch", BATCHES)
def test_there_and_back(batch: Any) -> None:
    one = torch.utils._pytree.tree_map(lambda tensor: tensor[:1], batch)
    form = Form.of(one)
    packed = form.pack(batch)
    assert packed.dtype == torch.uint8 and packed.numel() == form.nbytes(5)
    again = form.unpack(packed, 5)
    torch.testing.assert_close(again, batch, rtol=0, atol=0)
    packed.zero_()
    torch.testing.assert_close(again, batch, rtol=0, atol=0)  # it shares no memory


@pytest.mark.parametrize("batch", [[torch.ones(2), "name"], [torch.tensor(1.0)], {"x": 3}])
def test_what_is_not_a_row_for_each_sample_is_refused(batch: Any) -> None:
    with pytest.raises(WorkbenchError, match="send tensors with a row for each sample"):
        Form.of(batch)


@pytest.mark.parametrize(
    "batch", [[torch.ones(2, 4)], [torch.ones(2, 3).double()], [torch.ones(2, 3)] * 2]
)
def test_a_batch_of_another_form_is_refused(batch: Any) -> None:
    with pytest.raises(WorkbenchError, match="must have one form"):
        Form.of([torch.ones(1, 3)]).pack(batch)
