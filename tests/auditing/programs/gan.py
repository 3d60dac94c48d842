"""Two networks, two optimizers, DDP; a gradient penalty."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()
G, D = (
    DDP(nn.Linear(3, 4)),
    DDP(nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)), broadcast_buffers=False),
)
og, od = torch.optim.Adam(G.parameters(), lr=1e-3), torch.optim.Adam(D.parameters(), lr=1e-3)
torch.manual_seed(me)
real = torch.randn(2, 6, 4)
for step in range(2):
    z = torch.randn(6, 3)
    fake = G(z).detach()
    od.zero_grad()
    x = real[step].clone().requires_grad_()
    out = D.module(x)
    penalty = torch.autograd.grad(out.sum(), x, create_graph=True)[0].square().sum(1).mean()
    (F.softplus(-D(real[step])).mean() + F.softplus(D.module(fake)).mean() + penalty).backward()
    od.step()
    og.zero_grad()
    F.softplus(-D.module(G(z))).mean().backward()
    og.step()
dist.destroy_process_group()
