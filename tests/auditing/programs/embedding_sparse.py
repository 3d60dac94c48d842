"""An embedding of which each rank touches other rows, an unused parameter, an auxiliary loss."""

import torch
import torch.distributed as dist
from start import start
from torch import nn

me, n = start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l, self.unused = nn.Embedding(9, 4), nn.Linear(4, 2), nn.Linear(2, 2)


net = Net()
opt = torch.optim.Adagrad(net.parameters(), lr=0.1)
ids = torch.arange(2 * n * 3).view(2, n, 3) % 9
for step in range(2):
    opt.zero_grad()
    h = net.e(ids[step, me])
    out = net.l(h.tanh())
    loss = out.square().mean() + 0.01 * net.l.weight.square().sum()
    loss.backward()
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= n
    opt.step()
dist.destroy_process_group()
