"""Hugging Face's Trainer with a small GPT-2 of its own: trained, evaluated, saved, resumed."""

import os
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback


class Tokens(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.tokens = torch.randint(64, (rows, 16), generator=torch.Generator().manual_seed(rows))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tokens[i]}


rank = int(os.environ["RANK"])
where = os.path.join(tempfile.gettempdir(), f"trainer-{os.environ['TORCHELASTIC_RUN_ID']}")
options = TrainingArguments(
    where,
    use_cpu=True,
    max_steps=6,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=1e-2,
    logging_steps=1,
    save_steps=3,
    eval_strategy="steps",
    eval_steps=3,
    report_to=[],
    disable_tqdm=True,
    seed=7,
)


def new():
    set_seed(0)
    size = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    return Trainer(
        GPT2LMHeadModel(size), options, train_dataset=Tokens(96), eval_dataset=Tokens(20)
    )


for resume in (None, os.path.join(where, "checkpoint-3")):
    trainer = new()
    trainer.remove_callback(PrinterCallback)  # it prints how long it took
    trainer.train(resume_from_checkpoint=resume)
    for entry in trainer.state.log_history:
        known = ("loss", "grad_norm", "eval_loss", "train_loss")
        print(f"[{rank}]", {name: entry[name] for name in known if name in entry})
    print(f"[{rank}]", [parameter.sum().item() for parameter in trainer.model.parameters()][:4])
dist.barrier()
dist.destroy_process_group()
