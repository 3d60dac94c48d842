"""ZeRO-1 by hand: reduce-scatter, AdamW on a flat shard, all-gather.

BUG: sum (no division), no_gather, stale (a shard of the gradient that was not reduced)
"""

import torch
import torch.distributed as dist
from start import BUG, start
from torch import nn

me, n = start()
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
params = list(net.parameters())
flat = torch.cat([p.detach().flatten() for p in params])
pad = -len(flat) % n
flat = torch.cat([flat, torch.zeros(pad)])
shard = nn.Parameter(flat.chunk(n)[me].clone())
opt = torch.optim.AdamW([shard], lr=1e-3)
x = torch.randn(2, n, 5, 6)
for step in range(2):
    net.zero_grad()
    net(x[step, me]).square().mean().backward()
    g = torch.cat([p.grad.flatten() for p in params] + [torch.zeros(pad)])
    mine = torch.empty_like(shard)
    dist.reduce_scatter_tensor(mine, g)
    shard.grad = mine if BUG == "sum" else g.chunk(n)[me].clone() if BUG == "stale" else mine / n
    opt.step()
    whole = torch.empty_like(flat)
    dist.all_gather_into_tensor(whole, shard.detach())
    at = 0
    for p in params:
        if not (BUG == "no_gather" and me == 1):
            p.data.copy_(whole[at : at + p.numel()].view_as(p))
        at += p.numel()
dist.destroy_process_group()
