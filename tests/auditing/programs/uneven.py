"""DDP, an uneven batch, the loss weighted by tokens.

BUG: means (mean of means), ignore (padding, mean of means)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()
net = DDP(nn.Linear(6, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(5)
x = torch.randn(n, 6, 6)
y = torch.randint(0, 4, (n, 6))
lengths = torch.tensor([6, 2, 4, 5][:n])
mine = slice(0, int(lengths[me]))
total = lengths.sum()
for _ in range(2):
    opt.zero_grad()
    if BUG == "means":
        loss = F.cross_entropy(net(x[me, mine]), y[me, mine])
    elif BUG == "ignore":
        labels = y[me].clone()
        labels[lengths[me] :] = -100
        loss = F.cross_entropy(net(x[me]), labels, ignore_index=-100)
    else:
        loss = F.cross_entropy(net(x[me, mine]), y[me, mine], reduction="sum") * n / total
    loss.backward()
    opt.step()
dist.destroy_process_group()
