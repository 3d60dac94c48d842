"""Torch's pipelining, 1F1B, two stages, four microbatches.

BUG: forget (gradients are not divided by the microbatches)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

me, n = start()
parts = [
    nn.Sequential(nn.Linear(6, 8), nn.ReLU()),
    nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)),
]
net = parts[me]
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
schedule = Schedule1F1B(
    PipelineStage(net, me, n, torch.device("cpu")),
    4,
    loss_fn=F.cross_entropy,
    scale_grads=BUG != "forget",
)
x, y = torch.randn(2, 8, 6), torch.randint(0, 3, (2, 8))
for step in range(2):
    opt.zero_grad()
    schedule.step(x[step]) if me == 0 else schedule.step(target=y[step])
    opt.step()
dist.destroy_process_group()
