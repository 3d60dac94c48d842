"""FSDP, layer by layer, AdamW, clipping over DTensors; HSDP with 4 ranks.

BUG: divide (a wrong factor), clip_own, no_replica
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

me, n = start()
mesh = (
    init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("replica", "shard"))
    if n == 4
    else init_device_mesh("cpu", (n,), mesh_dim_names=("dp",))
)
net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
for layer in (net[0], net[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
if BUG == "divide":
    for layer in (net[0],):
        layer.set_force_sum_reduction_for_comms(True)
        layer.set_gradient_divide_factor(1.0)
if BUG == "no_replica":
    net.set_requires_all_reduce(False)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
data = torch.randn(2, n, 5, 6)
labels = torch.randint(0, 3, (2, n, 5))
for x, y in zip(data[:, me], labels[:, me], strict=True):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    if BUG == "clip_own":
        norm = sum(p.grad.to_local().square().sum() for p in net.parameters()).sqrt()
        for p in net.parameters():
            p.grad.to_local().mul_(0.05 / norm)
    else:
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    opt.step()
dist.destroy_process_group()
