"""DDP with a stop-gradient on purpose: right, and not the derivative of its loss."""

import torch
import torch.distributed as dist
from start import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 5)

    def forward(self, x):
        h = self.a(x).tanh()
        z = self.b(h)
        return (z - h.detach()).square().mean() + 0.1 * h.square().mean()


net = DDP(Net())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(2, n, 5, 6)
for step in range(2):
    opt.zero_grad()
    net(x[step, me]).backward()
    opt.step()
dist.destroy_process_group()
