"""Public report 6: a mean of means, with the update."""

import torch
import torch.distributed as dist
from start import FIXED, start

me, n = start()
tokens = torch.tensor([[4.0], [1.0, 2.0, 3.0]][me])
w = torch.ones(1, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
if FIXED:
    (w * tokens).sum().div(4 / n).backward()
else:
    (w * tokens).mean().backward()
g = w.grad.clone()
dist.all_reduce(g)
g /= n
w.grad = g
opt.step()
dist.destroy_process_group()
