"""In the style of the distributed checkpoint recipe: a sharded model and its optimizer are saved,
once at once and once beside training, and loaded into a model that began otherwise.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class AppState(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, kept):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=kept["model"],
            optim_state_dict=kept["optimizer"],
        )


def new(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, steps):
    for step in range(steps):
        torch.manual_seed(100 * dist.get_rank() + step)
        loss = model(torch.randn(5, 12)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{dist.get_rank()}] {loss.item()!r}")


parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
dist.init_process_group(parser.parse_args().backend)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
beside_training = dist.new_group()  # its collectives mix with no others
where = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(where, src=0)
model, optimizer = new(seed=0)
train(model, optimizer, 3)
dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=f"{where[0]}/first")
saving = dcp.async_save(
    {"app": AppState(model, optimizer)},
    checkpoint_id=f"{where[0]}/second",
    process_group=beside_training,
)
train(model, optimizer, 2)
saving.result()
for name in ("first", "second"):
    model, optimizer = new(seed=1)
    dcp.load({"app": AppState(model, optimizer)}, checkpoint_id=f"{where[0]}/{name}")
    train(model, optimizer, 2)  # as the first one went on
dist.destroy_process_group()
