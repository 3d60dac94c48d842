"""In the style of fine-tuning scripts: ``no_sync`` while gradients accumulate, clipping, gradients
compressed to half precision on their way, metrics averaged over ranks, best state by rank 0.
"""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")
dist.init_process_group(parser.parse_args().backend)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(24, 48), torch.nn.BatchNorm1d(48), torch.nn.ReLU(), torch.nn.Linear(48, 3)
)
ddp = DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=0.002)
ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
optimizer = torch.optim.RMSprop(ddp.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
torch.manual_seed(rank)
for epoch in range(3):
    counts = torch.zeros(2, dtype=torch.int64)
    for step in range(6):
        x, y = torch.randn(8, 24), torch.randint(3, (8,))
        last = step % 3 == 2
        with contextlib.nullcontext() if last else ddp.no_sync():
            out = ddp(x)
            torch.nn.functional.cross_entropy(out, y).div(3).backward()
        counts += torch.tensor([int((out.argmax(1) == y).sum()), len(y)])
        if last:
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    schedule.step()
    dist.all_reduce(counts)
    best = torch.tensor(float(counts[0]) / float(counts[1]))
    dist.broadcast(best, 0)
    print(f"[{rank}] epoch {epoch}: {best.item()!r} of {counts[1].item()}")
dist.barrier()  # torch's end of a Gloo group waits forever for a thread that lets go of ``best``
dist.destroy_process_group()
