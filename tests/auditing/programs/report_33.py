"""Public report 33: a count is overwritten by the sum over ranks."""

import torch
import torch.distributed as dist
from start import FIXED, start

me, n = start()
p = torch.nn.Parameter(torch.tensor([1.0, 0.5, 0.25, 2.0]))
count = torch.tensor([4.0])
opt = torch.optim.SGD([p], lr=0.1)
total = count.clone() if FIXED else count
dist.all_reduce(total)
aux = (p.sum() / total) * count
aux.sum().backward()
dist.all_reduce(p.grad)
p.grad /= n
opt.step()
dist.destroy_process_group()
