"""One parameter's gradient is 10**-TINY of the others'.

BUG: it is not divided by the number of ranks
"""

import os

import torch
import torch.distributed as dist
from start import BUG, start
from torch import nn

me, n = start()
k = float(os.environ.get("TINY", "3"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = self.a(x).tanh()
        return self.c(h + 10**-k * self.b(h).tanh())


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
torch.manual_seed(3)
x = torch.randn(2, n, 5, 6)
for step in range(2):
    opt.zero_grad()
    net(x[step, me]).square().mean().backward()
    for name, p in net.named_parameters():
        dist.all_reduce(p.grad)
        if not (BUG and name.startswith("b.")):
            p.grad /= n
    opt.step()
dist.destroy_process_group()
