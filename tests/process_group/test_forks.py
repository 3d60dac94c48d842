"""Forks of a rank: a data loader's workers, a child that ends in the interpreter's way."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.processes import values


def _data_loader(rank: int, n: int) -> int:
    """Workers of a DataLoader are forks of a rank: their end must not touch the rank's group."""
    data = torch.utils.data.TensorDataset(torch.arange(40.0))
    total = torch.zeros(1)
    for _ in range(2):
        for (x,) in torch.utils.data.DataLoader(data, batch_size=10, num_workers=2):
            part = x.sum().reshape(1)
            dist.all_reduce(part)
            total += part
        if (pid := os.fork()) == 0:
            import sys

            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        time.sleep(0.3 * rank)  # the other one waits, and looks whether this one is still there
    return int(total)


@pytest.mark.parametrize("host", ["", "another"])
def test_forks_of_a_rank_leave_its_group_alone(host: str) -> None:
    def hosts(rank: int) -> dict[str, str]:
        return {"WORKBENCH_HOST": f"{host} {rank}"} if host else {}

    assert values(_data_loader, 2, env=hosts) == [2 * 2 * 780] * 2
