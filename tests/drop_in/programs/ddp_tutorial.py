"""In the style of PyTorch's DDP tutorials: a Trainer, a DistributedSampler, a snapshot."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, loader, optimizer, path):
        self.model, self.loader, self.optimizer, self.path = DDP(model), loader, optimizer, path
        self.rank = int(os.environ["RANK"])

    def train(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
            print(f"[{self.rank}] epoch {epoch} | steps {len(self.loader)} | loss {loss.item()!r}")
            if self.rank == 0:
                torch.save({"model": self.model.module.state_dict(), "epoch": epoch}, self.path)


def main(backend, epochs, batch_size):
    dist.init_process_group(backend)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    data = TensorDataset(torch.randn(96, 20), torch.randint(4, (96,)))
    loader = DataLoader(data, batch_size, shuffle=False, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, loader, optimizer, f"{folder}/snapshot.pt").train(epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()
    main(options.backend, options.epochs, options.batch_size)
