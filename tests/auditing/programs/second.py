"""Right at the first update, wrong from the second on.

BUG: zero (gradients are not set to zero), once (reduced at the first update only), buffer (read
before it is filled), half (a part of the buffer is not filled again)
"""

import torch
import torch.distributed as dist
from start import BUG, start
from torch import nn

me, n = start()
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
params = list(net.parameters())
flat = torch.zeros(sum(p.numel() for p in params))
torch.manual_seed(3)
x = torch.randn(3, n, 5, 6)
for step in range(3):
    if not (BUG == "zero" and step):
        opt.zero_grad()
    net(x[step, me]).square().mean().backward()
    new = torch.cat([p.grad.flatten() for p in params]) / n
    if not (BUG == "once" and step):
        dist.all_reduce(new)
    if BUG == "half" and step:
        new[48:56] = flat[48:56]
    use = flat.clone() if BUG == "buffer" and step else new
    flat.copy_(new)
    for p, g in zip(params, use.split([p.numel() for p in params]), strict=True):
        p.grad.copy_(g.view_as(p))
    opt.step()
dist.destroy_process_group()
