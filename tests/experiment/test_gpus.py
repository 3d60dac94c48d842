"""A GPU that is not there: refused before anything starts, in words."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.common.errors import WorkbenchError
from workbench.experiment.checks import check_gpus
from workbench.rank.placement import device_of


@pytest.mark.parametrize(
    ("count", "device", "says"),
    [
        (0, "cuda", "finds no GPU"),
        (0, "cuda:0", "finds no GPU"),
        (2, "cuda:2", "finds cuda:0 to cuda:1"),
    ],
)
def test_a_gpu_that_is_not_here_is_refused_before_the_run(
    count: int, device: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(wb.SpecError, match=f"Experiment.device = '{device}': torch .* {says}"):
        wb.run(wb.Experiment(ranks=2, iterations=2, device=device))


def test_one_that_is_here_or_on_another_machine_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in ("auto", "cpu", "cuda", "cuda:1"):
        check_gpus(wb.Experiment(device=device))
    check_gpus(wb.Experiment(device="cuda:7", launcher="torchrun"))


def test_a_rank_names_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto", 3) == torch.device("cpu")
    for device in ("cuda", "cuda:0"):
        with pytest.raises(WorkbenchError, match=f"device='{device}': torch .* finds no GPU on "):
            device_of(device, 1)
