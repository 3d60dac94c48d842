"""A training loop of Hugging Face Accelerate's: ``prepare``, gradients accumulated and clipped,
metrics gathered, a checkpoint saved and loaded.
"""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
set_seed(0)
x = torch.randn(96, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)


def train():
    for inputs, targets in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        both = accelerator.gather_for_metrics(loss.detach()[None])
        print(f"[{accelerator.process_index}] {both.tolist()!r}")


train()
where = [tempfile.mkdtemp() if accelerator.is_main_process else None]
broadcast_object_list(where)
accelerator.save_state(where[0])
accelerator.wait_for_everyone()
train()
accelerator.load_state(where[0])
train()
print(repr(accelerator.reduce(sum(p.detach().sum() for p in model.parameters())).item()))
accelerator.end_training()
