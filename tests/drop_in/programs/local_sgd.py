"""In the style of the post-local SGD documentation: some steps of DDP, then each on its own, with
the models averaged every few steps.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
dist.init_process_group(parser.parse_args().backend)
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(10, 30), torch.nn.Tanh(), torch.nn.Linear(30, 2)))
alone = dist.new_group([rank], use_local_synchronization=True)
state = PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=4)
model.register_comm_hook(state, post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), PeriodicModelAverager(period=3, warmup_steps=4)
)
torch.manual_seed(rank)
for step in range(13):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 10)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"[{rank}] step {step}: {loss.item()!r}")
print([p.detach().double().sum().item() for p in model.parameters()])
dist.destroy_process_group()
