"""Experts by hand: a router on every rank, one expert per rank, all-to-all.

BUG: doubled (experts are not divided), router (is not reduced)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

me, n = start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.router = nn.Linear(6, n, bias=False)
        torch.manual_seed(90 + me)
        self.expert = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x):
        h = self.first(x).tanh()
        p = self.router(h).softmax(-1)
        top, where = p.max(-1)
        order = where.argsort(stable=True)
        counts = torch.bincount(where, minlength=n)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        out, back = theirs.tolist(), counts.tolist()
        got = exchange(h[order].contiguous(), out, back, dist.group.WORLD)
        done = exchange(self.expert(got).contiguous(), back, out, dist.group.WORLD)
        y = torch.zeros_like(h).index_copy(0, order, done)
        return h + top[:, None] * y


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
torch.manual_seed(4)
x, y = torch.randn(2, n, 9, 6), torch.randn(2, n, 9, 6)
for step in range(2):
    opt.zero_grad()
    F.mse_loss(net(x[step, me]), y[step, me]).backward()
    for name, p in net.named_parameters():
        if "expert" not in name and not (BUG == "router" and "router" in name):
            dist.all_reduce(p.grad)
        if not (BUG == "doubled" and "expert" in name):
            p.grad /= n
    opt.step()
dist.destroy_process_group()
