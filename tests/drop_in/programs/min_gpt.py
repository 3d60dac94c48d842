"""In the style of the minGPT trainer of PyTorch's DDP series: configurations as dataclasses, a
Trainer with training and evaluation, a snapshot that it resumes from, loaders with workers.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler

from tests.drop_in.programs.gpt import GPT, tokens


@dataclass
class TrainerConfig:
    max_epochs: int
    batch_size: int = 16
    workers: int = 1
    clip: float = 1.0
    snapshot: str = ""


class Characters(Dataset):
    def __init__(self, context=16):
        self.data, self.context = tokens(), context

    def __len__(self):
        return 160

    def __getitem__(self, i):
        piece = self.data[i : i + self.context + 1]
        return piece[:-1], piece[1:]


class Trainer:
    def __init__(self, config, model, optimizer, train, test):
        self.config, self.rank = config, int(os.environ["RANK"])
        self.train_loader, self.test_loader = self._loader(train), self._loader(test)
        self.epoch, self.model, self.optimizer = 0, model, optimizer
        if os.path.exists(config.snapshot):
            kept = torch.load(config.snapshot, weights_only=True)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            self.epoch = kept["epoch"]
        self.model = DDP(model)

    def _loader(self, data):
        return DataLoader(
            data,
            self.config.batch_size,
            sampler=DistributedSampler(data),
            num_workers=self.config.workers,
            multiprocessing_context="fork",
        )

    def _epoch(self, loader, train):
        loader.sampler.set_epoch(self.epoch)
        for x, y in loader:
            with torch.set_grad_enabled(train):
                _, loss = self.model(x, y)
            if train:
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
                self.optimizer.step()
        print(f"[{self.rank}] epoch {self.epoch} train {train} loss {loss.item()!r}")

    def train(self):
        while self.epoch < self.config.max_epochs:
            self._epoch(self.train_loader, True)
            self._epoch(self.test_loader, False)
            self.epoch += 1
        if self.rank == 0:
            kept = {"epoch": self.epoch, "optimizer": self.optimizer.state_dict()}
            torch.save(kept | {"model": self.model.module.state_dict()}, self.config.snapshot)
        dist.barrier()


def trained(config):
    torch.manual_seed(0)
    train, test = random_split(Characters(), [128, 32])
    model = GPT()
    Trainer(config, model, torch.optim.AdamW(model.parameters(), lr=3e-4), train, test).train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="nccl")
    dist.init_process_group(parser.parse_args().backend)
    where = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(where, src=0)
    for epochs in (1, 2):  # the second time from the snapshot of the first
        trained(TrainerConfig(epochs, snapshot=f"{where[0]}/snapshot.pt"))
    dist.destroy_process_group()
