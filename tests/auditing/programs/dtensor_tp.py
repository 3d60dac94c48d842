"""Torch's tensor parallel (parallelize_module), with 4 ranks FSDP over it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

me, n = start()
mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("dp", "tp"))
net = nn.Sequential(
    nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)), nn.Linear(6, 3)
)
parallelize_module(net[1], mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
if n == 4:
    fully_shard(net, mesh=mesh["dp"])
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
dp = me // 2
x, y = torch.randn(2, n // 2, 4, 6), torch.randint(0, 3, (2, n // 2, 4))
for step in range(2):
    opt.zero_grad()
    F.cross_entropy(net(x[step, dp]), y[step, dp]).backward()
    opt.step()
dist.destroy_process_group()
