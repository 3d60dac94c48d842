"""In torchtitan's style: a DeviceMesh of data and tensor parallelism, layers split by TP, blocks by
FSDP2 with activation checkpoints, losses over the mesh; saved by torch.distributed.checkpoint and
loaded into a model that began otherwise.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

VOCABULARY, WIDTH, HEADS, LENGTH = 32, 16, 2, 8


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (
            torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )

    def forward(self, x):
        q, k, v = (
            w(x).view(*x.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.w1, self.w2 = (
            torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False),
            torch.nn.Linear(4 * WIDTH, WIDTH, bias=False),
        )

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.w2(torch.nn.functional.silu(self.w1(self.ffn_norm(x))))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm = torch.nn.RMSNorm(WIDTH)
        self.output = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def new(seed):
    torch.manual_seed(seed)
    model = Transformer()
    whole = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    parallelize_module(model, mesh["tp"], whole)
    plan = {
        "attention_norm": SequenceParallel(),
        "ffn_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        ),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "w1": ColwiseParallel(input_layouts=Shard(1)),
        "w2": RowwiseParallel(output_layouts=Shard(1)),
    }
    for i, block in enumerate(model.layers):
        parallelize_module(block, mesh["tp"], plan)
        model.layers[i] = checkpoint_wrapper(block)
        fully_shard(model.layers[i], mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)


def train(model, optimizer, steps):
    for step in steps:
        torch.manual_seed(100 * mesh["dp"].get_local_rank() + step)
        tokens = torch.randint(VOCABULARY, (4, LENGTH + 1))
        with loss_parallel():
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), tokens[:, 1:].flatten(0, 1)
            )
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.full_tensor().detach()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM, group=mesh["dp"].get_group())
        print(f"[{dist.get_rank()}] step {step}: {mean.item()!r}, {norm.full_tensor().item()!r}")


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model, optimizer = new(seed=0)
train(model, optimizer, range(3))
where = os.path.join(tempfile.gettempdir(), f"mesh-{os.environ['TORCHELASTIC_RUN_ID']}")
weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=where)
train(model, optimizer, range(3, 5))
model, optimizer = new(seed=1)
weights, moments = get_state_dict(model, optimizer)
dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=where)
set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
train(model, optimizer, range(3, 5))  # as the first one went on
dist.destroy_process_group()
