"""In the style of the ``torch.distributed.pipelining`` tutorial: a stage a rank, 1F1B."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--schedule", default="1f1b", choices=["1f1b", "gpipe"])
options = parser.parse_args()
dist.init_process_group(options.backend)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()) for _ in range(2 * size)]
own = torch.nn.Sequential(*layers[2 * rank : 2 * rank + 2])
stage = PipelineStage(own, rank, size, torch.device("cpu"))
kind = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[options.schedule]
schedule = kind(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    torch.manual_seed(step)
    x, y = torch.randn(2, 16, 16)
    losses = []
    if rank == 0:
        schedule.step(x)
    elif rank == size - 1:
        schedule.step(target=y, losses=losses)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
    print(f"stage {rank}, step {step}: {[one.item() for one in losses]}")
dist.destroy_process_group()
