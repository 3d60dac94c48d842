"""Public report 36: two epochs without set_epoch."""

import torch
import torch.distributed as dist
from start import FIXED, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

me, n = start()
data = torch.randn(8, 3)
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=2, sampler=sampler)
net = DDP(nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    if FIXED:
        sampler.set_epoch(epoch)
    for x in loader:
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()
dist.destroy_process_group()
