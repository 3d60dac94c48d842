"""Public report 13: an expert's gradient, doubled."""

import torch
import torch.distributed as dist
from start import FIXED, start
from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

me, n = start()
weights = torch.randn(n, 4, 4)
data = torch.randn(n, 2 * n, 4)
mine = weights[me].clone().requires_grad_()
opt = torch.optim.SGD([mine], lr=0.1)
even = [2] * n
got = exchange(data[me].clone(), even, even, dist.group.WORLD)
back = exchange((got @ mine).relu(), even, even, dist.group.WORLD)
back.square().mean().backward()
if FIXED:
    mine.grad /= n
opt.step()
dist.destroy_process_group()
