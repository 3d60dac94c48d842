"""In the style of fault-tolerant training with torchrun: a snapshot after each epoch, from which
the next attempt goes on; ``--fail-after`` ends one rank once.
"""

import argparse
import hashlib
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("snapshot")
parser.add_argument("--backend", default="gloo")
parser.add_argument("--fail-after", type=int, default=-1)
options = parser.parse_args()
dist.init_process_group(options.backend)
rank, first = dist.get_rank(), 0
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
if os.path.exists(options.snapshot):
    kept = torch.load(options.snapshot, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    first = kept["epoch"] + 1
model = DDP(model)
for epoch in range(first, 4):
    for step in range(3):
        torch.manual_seed(1000 * rank + 10 * epoch + step)
        optimizer.zero_grad()
        model(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        kept = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(kept | {"epoch": epoch}, f"{options.snapshot}.new")
        os.replace(f"{options.snapshot}.new", options.snapshot)
    dist.barrier()
    if epoch == options.fail_after and rank == 1 and first == 0:
        os.kill(os.getpid(), signal.SIGKILL)
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
with open(f"{options.snapshot}.{rank}", "w") as file:
    file.write(f"epochs {first} to 3: {digest.hexdigest()}")
dist.destroy_process_group()
