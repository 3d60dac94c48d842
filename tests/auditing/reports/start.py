"""The first lines of every program here: the process group, a seed, and which bug it has."""

import datetime
import os

import torch
import torch.distributed as dist

BUG = os.environ.get("BUG", "")
FIXED = bool(os.environ.get("FIXED"))


def start() -> tuple[int, int]:
    """Return rank and size, in a group of its own."""
    limit = datetime.timedelta(seconds=120)
    dist.init_process_group(os.environ.get("BACKEND", "gloo"), timeout=limit)
    torch.manual_seed(0)
    return dist.get_rank(), dist.get_world_size()
