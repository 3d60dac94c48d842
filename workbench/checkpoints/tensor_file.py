"""Tensors in a file, in the format of safetensors: no code in it, nothing but names and numbers.

Format  https://huggingface.co/docs/safetensors: 8 bytes of length (little-endian), a JSON header of
        names, types, shapes and offsets, and the bytes. The library reads it. We write it here,
        because the library copies each tensor under the interpreter's lock, while training waits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_AT_ONCE = 1 << 20  # bytes: between two pieces other threads have their turn


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> tuple[int, str]:
    """Write tensors in host memory, and see that they reach the disk.

    Returns the file's bytes, and their SHA-256. Raises OSError; KeyError for a type of number that
    the format does not have.
    """
    bytes_of = {name: _bytes(value) for name, value in tensors.items()}
    described, end = dict[str, object](), 0
    for name, value in tensors.items():
        start, end = end, end + len(bytes_of[name])
        described[name] = {
            "dtype": _TYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [start, end],
        }
    header = json.dumps(described).encode()
    header += b" " * (-len(header) % 8)
    sha, written = hashlib.sha256(), 0
    with open(path, "xb", buffering=0) as file:
        first = memoryview(len(header).to_bytes(8, "little") + header)
        for whole in (first, *bytes_of.values()):
            for at in range(0, len(whole), _AT_ONCE):
                piece = whole[at : at + _AT_ONCE]
                sha.update(piece)
                while len(piece):
                    done = file.write(piece)
                    written, piece = written + done, piece[done:]
        os.fsync(file.fileno())
    return written, sha.hexdigest()


def _bytes(value: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor in host memory, not copied."""
    array = value.detach().contiguous().view(-1).view(torch.uint8).numpy()
    return memoryview(array)  # type: ignore[arg-type]  # an array is a buffer
