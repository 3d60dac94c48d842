"""Two stages that begin with equal bits, as they have one seed: two layers, not one."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch import nn

me, n = start()
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(9)
x, y = torch.randn(2, 5, 4), torch.randn(2, 5, 4)
for step in range(2):
    opt.zero_grad()
    if me == 0:
        out = net(x[step]).tanh()
        dist.send(out.detach(), 1)
        g = torch.empty(5, 4)
        dist.recv(g, 1)
        out.backward(g)
    else:
        h = torch.empty(5, 4)
        dist.recv(h, 0)
        h.requires_grad_()
        F.mse_loss(net(h), y[step]).backward()
        dist.send(h.grad, 0)
    opt.step()
dist.destroy_process_group()
