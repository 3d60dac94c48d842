"""Lightning's Trainer with FSDP2: what it calls ModelParallelStrategy, the one of its FSDPs that
runs without a GPU. A sharded checkpoint is saved, and resumed.
"""

import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1)
        )

    def configure_model(self):
        for layer in (*self.layers, self):
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        print(f"[{self.global_rank}] {loss.item()!r}")
        self.log("loss", loss, sync_dist=True)
        return loss

    def forward(self, x):
        return self.layers(x)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


L.seed_everything(0)
x = torch.randn(48, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6)
where = os.path.join(tempfile.gettempdir(), f"lightning-{os.environ['TORCHELASTIC_RUN_ID']}")
for resume in (None, os.path.join(where, "last.ckpt")):
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
        max_epochs=2 if resume is None else 3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), data, ckpt_path=resume)
    trainer.save_checkpoint(os.path.join(where, "last.ckpt"))
