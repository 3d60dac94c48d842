"""In the style of the DTensor tutorial: tensors cut along any dimension, moved from one placement
to another, multiplied as they lie; gradients through it all.
"""

import argparse
import itertools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, ones

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
dist.init_process_group(parser.parse_args().backend)
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))


def say(what, x):
    print(rank, what, x.detach().double().sum().item(), x.shape, x.flatten()[:4].tolist())


torch.manual_seed(0)
x = torch.randn(7, 6, requires_grad=True)  # 7: one rank has more of it than the other
weight = torch.randn(6, 5, requires_grad=True)
for a, b in itertools.permutations([Replicate(), Shard(0), Shard(1)], 2):
    say(f"{a} to {b}", distribute_tensor(x, mesh, [a]).redistribute(mesh, [b]).to_local())
for a, b in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
    left, right = distribute_tensor(x, mesh, [a]), distribute_tensor(weight, mesh, [b])
    product = (left @ right).full_tensor()
    say(f"{a} times {b}", product)
    product.square().sum().backward()
    say("their gradients", left.grad.full_tensor())
    say("their gradients", right.grad.full_tensor())
part = ones(4, 3, device_mesh=mesh, placements=[Shard(0)]).sum()
assert isinstance(part.placements[0], Partial)
say("a sum that is in parts", part.full_tensor().view(1))
held = torch.nn.Parameter(distribute_tensor(weight.detach(), mesh, [Shard(1)]))
optimizer = torch.optim.SGD([held], lr=0.1)
(distribute_tensor(x.detach(), mesh, [Replicate()]) @ held).square().mean().backward()
optimizer.step()
dist.destroy_process_group()
