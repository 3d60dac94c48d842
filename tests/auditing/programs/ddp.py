"""DDP with dropout, AdamW and clipping, two iterations.

BUG: no_sync, module, same_data, scaled, rank_lost, clip_own, noclip
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

me, n = start()
net = DDP(
    nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 3))
)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
data = torch.randn(2, n, 5, 6)
labels = torch.randint(0, 3, (2, n, 5))
if BUG == "same_data":
    data, labels = data[:, :1].expand(2, n, 5, 6), labels[:, :1].expand(2, n, 5)
torch.manual_seed(10 if BUG == "same_data" else 10 + me)
for x, y in zip(data[:, me], labels[:, me], strict=True):
    opt.zero_grad()
    with net.no_sync() if BUG == "no_sync" else contextlib.nullcontext():
        loss = F.cross_entropy((net.module if BUG == "module" else net)(x), y)
        if BUG == "scaled":
            loss = loss / n
        if BUG == "rank_lost" and me == 1:
            loss = loss * 0
        loss.backward()
    if BUG == "clip_own":
        nn.utils.clip_grad_norm_(net.parameters(), 0.05 * (1 + me))
    elif BUG != "noclip":
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    opt.step()
dist.destroy_process_group()
