"""DDP with BatchNorm over each rank's own samples, and GroupNorm."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()
net = DDP(
    nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
)
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
torch.manual_seed(7)
x, y = torch.randn(2, n, 4, 1, 8, 8), torch.randint(0, 3, (2, n, 4))
for step in range(2):
    opt.zero_grad()
    F.cross_entropy(net(x[step, me]), y[step, me]).backward()
    opt.step()
dist.destroy_process_group()
