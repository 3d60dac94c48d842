"""DDP with class weights in the loss, an auxiliary loss, an average of parameters."""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()
net = DDP(nn.Linear(6, 4))
ema = copy.deepcopy(net.module)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(me)
x, y = torch.randn(2, 8, 6), torch.randint(0, 4, (2, 8))
w = torch.tensor([1.0, 2.0, 3.0, 0.5])
for step in range(2):
    opt.zero_grad()
    out = net(x[step])
    (
        F.cross_entropy(out, y[step], weight=w)
        + 0.1 * F.mse_loss(out.softmax(-1), ema(x[step]).detach().softmax(-1))
    ).backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.module.parameters(), strict=True):
            a.lerp_(b, 0.1)
dist.destroy_process_group()
