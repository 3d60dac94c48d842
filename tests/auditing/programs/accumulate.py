"""DDP over two microbatches, ``no_sync`` for all but the last.

BUG: forget (no division), last_only (gradients set to zero between), dp_times (times the ranks)
"""

import contextlib

import torch
import torch.distributed as dist
from start import BUG, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()
M = 2
net = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
data = torch.randn(2, n, M, 5, 6)
for step in range(2):
    opt.zero_grad()
    for m in range(M):
        with net.no_sync() if m < M - 1 else contextlib.nullcontext():
            if BUG == "last_only" and m:
                opt.zero_grad()
            loss = net(data[step, me, m]).square().mean()
            if BUG != "forget":
                loss = loss / M
            if BUG == "dp_times":
                loss = loss * n * M
            loss.backward()
    opt.step()
dist.destroy_process_group()
