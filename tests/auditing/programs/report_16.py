"""Public report 16: a norm under sequence parallelism, not summed."""

import torch
import torch.distributed as dist
from start import FIXED, start
from torch import nn

me, n = start()
x = torch.randn(8, 4)
y = torch.randn(8, 4)
norm = nn.LayerNorm(4)
mine = slice(me * 8 // n, (me + 1) * 8 // n)
opt = torch.optim.SGD(norm.parameters(), lr=0.1)
((norm(x[mine]) * y[mine]).sum() / 8).backward()
if FIXED:
    for p in norm.parameters():
        dist.all_reduce(p.grad)
opt.step()
dist.destroy_process_group()
