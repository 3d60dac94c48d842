"""Public report 15: gathered tokens, whose gradient is sliced and not summed."""

import torch
import torch.distributed as dist
from start import FIXED, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

me, n = start()
mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("ep",))
first = nn.Linear(3, 3)
torch.manual_seed(10 + me)
expert = nn.Linear(3, 1)
x = torch.randn(2, 3)
opt = torch.optim.SGD([*first.parameters(), *expert.parameters()], lr=0.1)
whole = DTensor.from_local(first(x), mesh, [Shard(0)]).full_tensor(
    grad_placements=[Partial()] if FIXED else None
)
expert(whole).square().sum().backward()
for p in first.parameters():
    dist.all_reduce(p.grad)
opt.step()
dist.destroy_process_group()
