"""A plain loop with all-reduces.

BUG: sum, seeds (ranks begin apart), copy (reduces a copy), only_some (one is forgotten), late
(reduces after the update)
"""

import torch
import torch.distributed as dist
from start import BUG, start
from torch import nn

me, n = start()
if BUG == "seeds":
    torch.manual_seed(me)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(3)
x = torch.randn(2, n, 5, 6)
for step in range(2):
    opt.zero_grad()
    net(x[step, me]).square().mean().backward()
    if BUG == "late":
        opt.step()
    for i, p in enumerate(net.parameters()):
        if BUG == "only_some" and i == 2:
            continue
        dist.all_reduce(p.grad.clone() if BUG == "copy" else p.grad)
        if BUG != "sum":
            p.grad /= n
    if BUG != "late":
        opt.step()
dist.destroy_process_group()
