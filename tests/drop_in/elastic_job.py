"""A job under ``torchrun --nnodes MIN:MAX``: it goes on where it was, until a file ends it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main(folder: Path) -> None:
    dist.init_process_group("workbench")
    rank, size, kept = dist.get_rank(), dist.get_world_size(), folder / "iteration"
    begun = torch.tensor([int(kept.read_text()) if kept.exists() else 0])
    dist.broadcast(begun, 0)
    first = iteration = int(begun)
    enough = False
    while not enough:
        sums = torch.tensor([1, int((folder / "enough").exists())])
        dist.all_reduce(sums)
        assert int(sums[0]) == size
        enough, iteration = int(sums[1]) == size, iteration + 1
        if rank == 0:
            (folder / "next").write_text(str(iteration))
            os.replace(folder / "next", kept)
            if iteration == first + 5:  # this attempt trains
                with (folder / "attempts").open("a") as attempts:
                    attempts.write(f"{size} {first}\n")
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
