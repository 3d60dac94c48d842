"""Context parallel: attention over the keys of all ranks, gathered; backward reduce-scatters.

BUG: stale (own keys' gradient only), no_sum (weights are not reduced)
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
        if BUG == "stale":
            return g.chunk(n)[me].clone()
        out = torch.empty(len(g) // n, *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous())
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (
            nn.Linear(6, 6, bias=b) for b in (True, False, True, True)
        )

    def forward(self, x):
        k, v = Gather.apply(self.k(x)), Gather.apply(self.v(x))
        return x + self.out((self.q(x) @ k.T / 6**0.5).softmax(-1) @ v)


net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
x, y = torch.randn(2, n, 5, 6), torch.randn(2, n, 5, 6)
for step in range(2):
    opt.zero_grad()
    F.mse_loss(net(x[step, me]), y[step, me]).backward()
    for p in net.parameters():
        if BUG != "no_sum":
            dist.all_reduce(p.grad)
        p.grad /= n
    opt.step()
dist.destroy_process_group()
