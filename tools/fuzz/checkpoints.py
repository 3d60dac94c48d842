"""Checkpoints made by hand: whole by their checksums, and of values that no run writes."""

from __future__ import annotations

import copy
import hashlib
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

import workbench as wb
from tools.fuzz.made_up import damaged, json_text, put_no_file, value
from tools.fuzz.recordings import NUMBERS

EXPERIMENT: dict[str, Any] = {
    "task": "mlp_layers",
    "task_options": {"layers": 2, "width": 16},
    "ranks": 2,
    "batch_size": 8,
    "threads": 1,
    "optimizer": "adam",
    "iterations": 6,
}
NAME = "iteration-00000004"
LONGEST = '{"iteration": {}}'  # {}: its digits
INSTEAD = ("fifo", "folder", "loop", "nothing")  # of a file
Case = dict[str, bytes | str]  # name -> its bytes, or what is there instead


def checkpoint(chance: random.Random) -> Case:
    """The files of one, in which some values are something else."""
    files: Case = {}
    for rank in range(2):
        values = {"history": {"sizes": [[0, 8]]}, "step": [1]}
        own: Any = {"values": values, "tensors": {"model.w": [8, [[4 * rank, 4 * rank + 4]]]}}
        own |= {"per_rank": []}
        files[f"rank-{rank:04d}.json"] = json_text(_altered(own, chance, 0.3), LONGEST)
        tensors = save({"model.w": torch.zeros(4, 16)})
        files[f"rank-{rank:04d}.safetensors"] = (
            damaged(tensors, chance) if chance.random() < 0.2 else tensors
        )
    spec = wb.Experiment(**EXPERIMENT).model_dump(mode="json")
    manifest: Any = {"format": 1, "iteration": 4, "ranks": 2, "present": [0, 1], "spec": spec}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}  # type: ignore[arg-type]
    manifest |= {"per_rank": [], "files": sums}
    data = json_text(_altered(manifest, chance, 0.5), LONGEST)
    if chance.random() < 0.15:
        data = chance.choice(
            (b"", b"[" * 200_000, b'{"a":' * 100_000, b"null", damaged(data, chance))
        )
    files["checkpoint.json"] = data
    if chance.random() < 0.15:
        files[chance.choice([*files])] = chance.choice(INSTEAD)
    return files


def write(files: Case, folder: Path) -> dict[str, Any]:
    """Write one into a folder; return the fields of an experiment that goes on from it."""
    place = folder / NAME
    place.mkdir(parents=True)
    for name, data in files.items():
        path = place / name
        if isinstance(data, bytes):
            path.write_bytes(data)
        else:
            put_no_file(path, data)
    return EXPERIMENT | {"resume": str(folder)}


def _altered(tree: Any, chance: random.Random, often: float) -> Any:
    """The same with a value in it replaced, so often."""
    if chance.random() > often:
        return tree
    tree = copy.deepcopy(tree)
    node: Any = tree
    while True:
        key = chance.choice([*node] if isinstance(node, dict) else range(len(node)))
        if not (isinstance(node[key], dict | list) and node[key]) or chance.random() < 0.3:
            break
        node = node[key]
    node[key] = chance.choice(NUMBERS) if chance.random() < 0.7 else value(chance)
    return tree
