"""Public report 17: a gradient is reduced through a helper that may reduce a copy."""

import torch
import torch.distributed as dist
from start import FIXED, start
from torch import nn

me, n = start()


def reduced(x):
    if FIXED:
        y = x.contiguous()
        dist.all_reduce(y)
        return y
    dist.all_reduce(x.contiguous())
    return x


a, b = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(4, 2).T)
opt = torch.optim.SGD([a, b], lr=0.1)
torch.manual_seed(me)
x = torch.randn(5, 3)
(x @ a @ b).square().mean().backward()
for p in (a, b):
    p.grad = (
        reduced(p.grad.as_strided(p.shape, p.stride()) if p is a else p.grad.T.contiguous().T) / n
    )
opt.step()
dist.destroy_process_group()
