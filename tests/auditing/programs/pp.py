"""A pipeline by hand: two stages, two microbatches, tied ends whose gradients are summed.

BUG: forget (no division), tied (ends are not summed), half (a microbatch's backward is lost)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn

me, n = start()
M = 2


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(7, 4))
        torch.manual_seed(50 + me)
        self.mid = nn.Linear(4, 4)

    def forward(self, x):
        return self.mid(self.embed[x]).tanh() if me == 0 else self.mid(x).relu() @ self.embed.T


net = Stage()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ids = torch.randint(0, 7, (2, M, 5))
for step in range(2):
    opt.zero_grad()
    kept = []
    for m in range(M):
        if me == 0:
            out = net(ids[step, m])
            dist.send(out.detach().contiguous(), 1)
            kept.append(out)
        else:
            h = torch.empty(5, 4)
            dist.recv(h, 0)
            h.requires_grad_()
            loss = F.cross_entropy(net(h), ids[step, m])
            (loss if BUG == "forget" else loss / M).backward()
            kept.append(h.grad)
    for m in range(M):
        if me == 1:
            dist.send(kept[m], 0)
        else:
            g = torch.empty(5, 4)
            dist.recv(g, 1)
            if not (BUG == "half" and m == 0):
                kept[m].backward(g)
    if BUG != "tied":
        dist.all_reduce(net.embed.grad)
    opt.step()
dist.destroy_process_group()
