"""In the style of "Writing distributed applications with PyTorch": gradients averaged by hand, one
all-reduce a parameter; messages to the neighbor; every rank's result gathered on rank 0.
"""

import argparse

import torch
import torch.distributed as dist


def average_gradients(model):
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad /= size


def pass_on(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    arrived = torch.zeros_like(x)
    request = dist.isend(x, dst=(rank + 1) % size)
    dist.recv(arrived, src=(rank - 1) % size)
    request.wait()
    return arrived


parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
dist.init_process_group(parser.parse_args().backend)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1234)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
data = torch.randn(8, size, 12, 16)
for batch in data:
    optimizer.zero_grad()
    loss = model(batch[rank]).square().mean()
    loss.backward()
    average_gradients(model)
    optimizer.step()
    print(f"rank {rank}: {loss.item()!r}")
print("the neighbor's loss", pass_on(loss.detach()).item())
everyone = [torch.zeros(()) for _ in range(size)] if rank == 0 else None
dist.gather(loss.detach(), everyone, dst=0)
print(everyone)
dist.destroy_process_group()
