"""DDP, a transformer of copied layers, tied embedding, dropout, recomputation.

BUG: no_rng (recomputation draws other dropout)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import BUG, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

me, n = start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
            2,
            enable_nested_tensor=False,
        )

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.body.layers:
            h = checkpoint(layer, h, use_reentrant=False, preserve_rng_state=BUG != "no_rng")
        return self.head(h)


net = DDP(Net())
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
ids = torch.randint(0, 11, (2, n, 3, 6))
torch.manual_seed(20 + me)
for step in range(2):
    opt.zero_grad()
    out = net(ids[step, me])
    F.cross_entropy(out[:, :-1].flatten(0, 1), ids[step, me][:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
dist.destroy_process_group()
