"""In the style of nanoGPT's train.py: one loop, gradients accumulated with the synchronization
switched off by hand, clipped, a learning rate that warms up and decays, rank 0 as master.
"""

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.drop_in.programs.gpt import GPT, tokens

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")
backend = parser.parse_args().backend
accumulate, batch, context, steps, warmup, top_rate = 4, 4, 16, 8, 2, 6e-4

dist.init_process_group(backend=backend)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master_process = rank == 0
assert accumulate % size == 0
accumulate //= size
torch.manual_seed(1337 + rank)
data = tokens()


def get_batch():
    at = torch.randint(len(data) - context, (batch,))
    x = torch.stack([data[i : i + context] for i in at])
    y = torch.stack([data[i + 1 : i + 1 + context] for i in at])
    return x, y


def learning_rate(step):
    if step < warmup:
        return top_rate * (step + 1) / (warmup + 1)
    return 0.5 * top_rate * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


model = DDP(GPT())  # DDP gives every rank the parameters of rank 0
matrices = [p for p in model.parameters() if p.dim() >= 2]
vectors = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
    lr=top_rate,
    betas=(0.9, 0.95),
)

for step in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    for micro_step in range(accumulate):
        model.require_backward_grad_sync = micro_step == accumulate - 1
        _, loss = model(*get_batch())
        (loss / accumulate).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if master_process:
        print(f"iter {step}: loss {loss.item()!r}, norm {norm.item()!r}")
dist.destroy_process_group()
