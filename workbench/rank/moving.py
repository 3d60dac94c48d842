"""Snapshots from rank to rank, with a description of them: no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from workbench.checkpoints.parts import Snapshot
from workbench.checkpoints.rows import Rows

Sent = list[tuple[dist.Work, torch.Tensor]]  # messages, each with what it reads from


def send(
    snapshot: Snapshot, facts: Mapping[str, Any], to: int, group: dist.ProcessGroup, tag: int = 0
) -> Sent:
    """Begin to send a snapshot, and ``facts`` with it. Return what to wait for."""
    tensors = {key: value.detach().contiguous() for key, value in snapshot.tensors.items()}
    described = {
        "told": facts,
        "values": snapshot.values,
        "tensors": [
            [key, str(value.dtype).removeprefix("torch."), list(value.shape), _rows(snapshot, key)]
            for key, value in tensors.items()
        ],
    }
    text = torch.frombuffer(bytearray(json.dumps(described).encode()), dtype=torch.uint8)
    parts = [torch.tensor([len(text)]), text]
    parts += [value.reshape(-1).view(torch.uint8) for value in tensors.values() if value.numel()]
    return [(_posted(dist.isend(part, to, group=group, tag=tag)), part) for part in parts]


def receive(frm: int, group: dist.ProcessGroup, tag: int = 0) -> tuple[Snapshot, dict[str, Any]]:
    """Receive what ``send`` sent."""
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, frm, group=group, tag=tag)
    text = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(text, frm, group=group, tag=tag)
    described = json.loads(text.numpy().tobytes())
    result = Snapshot(values=described["values"])
    for key, dtype, shape, rows in described["tensors"]:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        if tensor.numel():
            dist.recv(tensor.reshape(-1).view(torch.uint8), frm, group=group, tag=tag)
        result.tensors[key] = tensor
        result.rows[key] = None if rows is None else Rows.from_lists(rows)
    return result, described["told"]


def finish(sent: Sent) -> None:
    """Wait until all of it has left."""
    for work, _ in sent:
        work.wait()


def _rows(snapshot: Snapshot, key: str) -> list[Any] | None:
    rows = snapshot.rows.get(key)
    return None if rows is None else rows.as_lists()


def _posted(work: dist.Work | None) -> dist.Work:
    assert work is not None
    return work
