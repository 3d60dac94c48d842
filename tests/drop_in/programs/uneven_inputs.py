"""In the style of the Join tutorial: ranks with different numbers of batches, and an optimizer
whose state is spread over them.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
dist.init_process_group(parser.parse_args().backend)
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.ReLU(), torch.nn.Linear(9, 9)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
torch.manual_seed(rank)
inputs = [torch.randn(4, 9) for _ in range(5 + 3 * rank)]
with Join([model, optimizer]):
    for x in inputs:
        loss = model(x).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{rank}] {loss.item()!r}")
print(f"rank {rank} had {len(inputs)} batches")
dist.destroy_process_group()
