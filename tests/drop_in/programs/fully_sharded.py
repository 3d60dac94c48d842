"""In the style of PyTorch's FSDP2 example: ``fully_shard`` block by block, gradients clipped;
``--replicas 2`` shards inside of pairs and replicates between them (HSDP).
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from tests.drop_in.programs.gpt import GPT, tokens

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--mixed-precision", action="store_true")
arguments = parser.parse_args()
dist.init_process_group(arguments.backend)
rank, size = dist.get_rank(), dist.get_world_size()
if arguments.replicas > 1:
    shape = (arguments.replicas, size // arguments.replicas)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
else:
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("shard",))
torch.manual_seed(0)
model = GPT()
options = {"mesh": mesh}
if arguments.mixed_precision:
    options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
for block in model.blocks:
    fully_shard(block, **options)
fully_shard(model, **options)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(42 + rank)
data = tokens()
for step in range(5):
    at = torch.randint(len(data) - 17, (4,))
    piece = torch.stack([data[i : i + 17] for i in at])
    _, loss = model(piece[:, :-1], piece[:, 1:])
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"[{rank}] step {step}: {loss.item()!r}, {norm.full_tensor().item()!r}")
dist.destroy_process_group()
