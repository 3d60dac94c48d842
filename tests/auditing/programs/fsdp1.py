"""Torch's first FSDP, wrapped layer by layer."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

me, n = start()
net = FSDP(
    nn.Sequential(FSDP(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)), device_id=torch.device("cpu")
)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(2, n, 5, 6), torch.randint(0, 3, (2, n, 5))
for step in range(2):
    opt.zero_grad()
    F.cross_entropy(net(x[step, me]), y[step, me]).backward()
    opt.step()
dist.destroy_process_group()
