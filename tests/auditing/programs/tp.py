"""Tensor parallel by hand: norm (replicated), column, row with a bias.

BUG: no_f (backward of the copy is not reduced), g_twice (backward of the sum is, too), f_bias
(row's bias is added before the sum)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn

me, n = start()


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        if BUG == "no_f":
            return g
        g = g.clone()
        dist.all_reduce(g)
        return g


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        if BUG == "g_twice":
            g = g.clone()
            dist.all_reduce(g)
        return g


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        first, second = nn.Linear(6, 8), nn.Linear(8, 6)
        self.column, self.row = nn.Linear(6, 8 // n), nn.Linear(8 // n, 6, bias=False)
        self.bias = nn.Parameter(torch.zeros(6))
        with torch.no_grad():
            self.column.weight.copy_(first.weight.chunk(n)[me])
            self.column.bias.copy_(torch.zeros(8 // n))
            self.row.weight.copy_(second.weight.chunk(n, 1)[me])

    def forward(self, x):
        h = Copy.apply(self.norm(x))
        out = self.row(self.column(h).relu())
        if BUG == "f_bias":
            return x + Sum.apply(out + self.bias)
        return x + Sum.apply(out) + self.bias


net = nn.Sequential(nn.Linear(6, 6), Block(), Block(), nn.Linear(6, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(2, 5, 6), torch.randint(0, 3, (2, 5))
for step in range(2):
    opt.zero_grad()
    F.cross_entropy(net(x[step]), y[step]).backward()
    opt.step()
dist.destroy_process_group()
