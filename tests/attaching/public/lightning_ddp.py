"""Lightning's Trainer with DDP: metrics reduced over ranks, a checkpoint of the best, a test."""

import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1)
        )

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def training_step(self, batch, _):
        loss = self.loss(batch)
        print(f"[{self.global_rank}] {loss.item()!r}")
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def on_validation_end(self):
        print(f"[{self.global_rank}] val {self.trainer.callback_metrics['val_loss'].item()!r}")

    def test_step(self, batch, _):
        self.log("test_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def samples(seed):
    x = torch.randn(48, 8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6)


L.seed_everything(0)
where = os.path.join(tempfile.gettempdir(), f"lightning-{os.environ['TORCHELASTIC_RUN_ID']}")
trainer = L.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=2,
    gradient_clip_val=1.0,
    callbacks=[ModelCheckpoint(where, monitor="val_loss")],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), samples(1), samples(2))
(figures,) = trainer.test(ckpt_path="best", dataloaders=samples(3), verbose=False)
print(f"[{trainer.global_rank}] {figures['test_loss']!r}")
