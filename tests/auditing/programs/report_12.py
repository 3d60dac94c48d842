"""Public report 12 in a job of one rank: a weight that is used twice.

BUG: count (as before torch's clamp, the second use counts twice)
"""

import torch
import torch.distributed as dist
from start import BUG, start
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

me, n = start()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[1.0, 0.5], [-0.5, 2.0]]))
        self.v = nn.Parameter(torch.tensor([0.3, 0.9]))

    def forward(self, x):
        return ((x @ self.w).tanh() @ (Double.apply(self.w) if BUG == "count" else self.w)) @ self.v


net = Twice()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(3, 2, requires_grad=True)
out = net(x).square().mean()
_, groups = stage_backward_input([out], None, [x], iter([net.w, net.v]))
stage_backward_weight(iter([net.w, net.v]), groups)
opt.step()
dist.destroy_process_group()
