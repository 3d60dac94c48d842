"""Tensor and sequence parallel by hand: each rank norms its own tokens.

BUG: norm (its weight is not summed over tp), bias (row's bias is not), mean (the norm is averaged),
scatter (backward of the gather slices)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn

me, n = start()


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty(n * len(x), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        if BUG == "scatter":
            return g.chunk(n)[me].clone()
        out = torch.empty(len(g) // n, *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous())
        return out


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty(len(x) // n, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        out = torch.empty(n * len(g), *g.shape[1:])
        dist.all_gather_into_tensor(out, g.contiguous())
        return out


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        first, second = nn.Linear(6, 8), nn.Linear(8, 6)
        self.column, self.row = nn.Linear(6, 8 // n), nn.Linear(8 // n, 6, bias=False)
        self.bias = nn.Parameter(torch.zeros(6))
        with torch.no_grad():
            self.column.weight.copy_(first.weight.chunk(n)[me])
            self.row.weight.copy_(second.weight.chunk(n, 1)[me])

    def forward(self, x):
        return (
            x + Scatter.apply(self.row(self.column(Gather.apply(self.norm(x))).relu())) + self.bias
        )


net = nn.Sequential(nn.Linear(6, 6), Block(), Block(), nn.Linear(6, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(2, 4 * n, 6), torch.randint(0, 3, (2, 4 * n))
for step in range(2):
    opt.zero_grad()
    mine = slice(4 * me, 4 * me + 4)
    (F.cross_entropy(net(x[step, mine]), y[step, mine], reduction="sum") / (4 * n)).backward()
    for name, p in net.named_parameters():
        if any(w in name for w in ("column", "row")):
            continue  # sharded: its own gradient is the whole
        if (
            (BUG == "norm" and "norm" in name)
            or (BUG == "bias" and name.endswith("1.bias"))
            or (
                BUG == "mean"
                and "norm" in name
                and not dist.all_reduce(p.grad)
                and not p.grad.div_(n).isnan().any()
            )
        ):
            continue
        dist.all_reduce(p.grad)
    opt.step()
dist.destroy_process_group()
