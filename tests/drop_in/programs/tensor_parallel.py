"""In the style of PyTorch's tensor parallel examples: a mesh, and layers split by columns and rows;
``--sequence`` splits what is between them along the sequence.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Layer(torch.nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 64), torch.nn.Linear(64, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


parser = argparse.ArgumentParser()
parser.add_argument("--backend", default=None)
parser.add_argument("--sequence", action="store_true")
options = parser.parse_args()
if options.backend:
    dist.init_process_group(options.backend)  # else the mesh does, with what is the default
mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))
torch.manual_seed(0)
if options.sequence:
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    inputs = PrepareModuleInput(
        input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
    )
    model = torch.nn.Sequential(Layer(), Layer())
    for layer in model:
        parallelize_module(layer, mesh, plan)
    parallelize_module(model, mesh, inputs)
else:
    model = Layer()
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=False)
for step in range(6):
    torch.manual_seed(step)  # the same input on every rank
    out = model(torch.rand(4, 8, 24))
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {out.sum().item()!r}")
dist.destroy_process_group()
