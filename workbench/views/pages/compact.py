"""A message's block made small, for a file: what takes 57 bytes a row on the wire takes some four.

Nothing is rounded or left out: assets/widgets/unpack.js gives back the very block. In the order of
lanes

    start       from the end of the row before it in its lane       noise of one or two bytes
    end         as how long the row lasted                          the same
    seq         from the row before; more than one on is a gap      nothing
    value       its eight bytes: almost always the same NaN         nothing
    all else    as the number of the row's *shape*: every combination of kind, peer, step, chunk,
                nbytes ... that occurs is written once; an algorithm repeats its shapes call after
                call, and gzip finds that

and likewise for passages. Each column is whole numbers, the sign in the lowest bit, in planes: all
lowest bytes, then all second bytes ..., as many as the largest needs. That is not yet smaller than
the block by much; gzip, which comes after it, makes it so.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.views.packing import Message

OWN_OF_ROWS = ("start", "end", "seq", "value")
OWN_OF_PASSAGES = ("count", "rank", "lane", "op", "iteration", "version")
Column = npt.NDArray[Any]
Whole = npt.NDArray[np.int64]


def part(message: Message) -> bytes:
    """Return the message as one section of a file: two lengths (u4), the header as JSON, the
    columns.
    """
    columns, sizes = compact(message)
    header = json.dumps({**message.header, "compact": sizes}, allow_nan=False).encode()
    return struct.pack("<II", len(header), len(columns)) + header + columns


def compact(message: Message) -> tuple[bytes, dict[str, int]]:
    """Return the columns of the message's block, and the counts of lanes, shapes and contexts."""
    if not message.header["rows"]:
        return b"", {"lanes": 0, "shapes": 0, "contexts": 0}
    rows, passages = _columns(message)
    lanes, lane_of = _distinct([passages["rank"], passages["lane"]])
    by_lane = np.argsort(lane_of, kind="stable")
    of_lane = {name: column[by_lane] for name, column in passages.items()}
    begins = _first_of_each(lane_of[by_lane])
    contexts, context_of = _distinct(_others(of_lane, OWN_OF_PASSAGES))
    numbers = [
        *lanes,
        *contexts,
        lane_of,
        of_lane["count"].astype(np.int64),
        context_of,
        *(_steps(of_lane[name], begins) for name in ("op", "iteration", "version")),
    ]

    row_lane = np.repeat(lane_of, passages["count"])
    by_lane = np.argsort(row_lane, kind="stable")
    of_lane = {name: column[by_lane] for name, column in rows.items()}
    begins = _first_of_each(row_lane[by_lane])
    shapes, shape_of = _distinct(_others(of_lane, OWN_OF_ROWS))
    start, end = of_lane["start"].astype(np.int64), of_lane["end"].astype(np.int64)
    before = np.concatenate([[0], end[:-1]])
    before[begins] = 0
    seq = _steps(of_lane["seq"], begins) - 1
    numbers += [*shapes, start - before, end - start, shape_of, seq]
    value = np.ascontiguousarray(of_lane["value"]).view(np.uint64)
    data = b"".join([*map(_in_planes, numbers), *_planes(value, 8)])
    sizes = {"lanes": len(lanes[0]), "shapes": len(shapes[0]), "contexts": len(contexts[0])}
    return data, sizes


def _columns(message: Message) -> tuple[dict[str, Column], dict[str, Column]]:
    """Return the columns of rows and of passages, as they lie in the block."""
    header, at = message.header, 0
    result: list[dict[str, Column]] = []
    for layout, length in (("layout", "rows"), ("passage_layout", "passages")):
        columns = {}
        for name, code in header[layout]:
            dtype = np.dtype("<" + code)
            columns[name] = np.frombuffer(message.payload, dtype, header[length], at)
            at += -(-columns[name].nbytes // 8) * 8
        result.append(columns)
    return result[0], result[1]


def _others(columns: dict[str, Column], names: Sequence[str]) -> list[Column]:
    return [column for name, column in columns.items() if name not in names]


def _distinct(columns: Sequence[Column]) -> tuple[list[Whole], Whole]:
    """Return each combination of values once, in the order of first occurrence, and the index of
    every row's combination.
    """
    key = np.zeros(len(columns[0]), np.int64)
    size = 1  # of the range that ``key`` is in
    for column in columns:
        numbers = column.astype(np.int64)
        low, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        if span > len(numbers):
            _, numbers = np.unique(numbers, return_inverse=True)
            low, span = 0, int(numbers.max()) + 1
        if size * span > 2**62:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max()) + 1
        key = key * span + (numbers - low)
        size *= span
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return [column[first[order]].astype(np.int64) for column in columns], place[which]


def _first_of_each(lanes: Whole) -> npt.NDArray[np.bool_]:
    return np.concatenate([[True], lanes[1:] != lanes[:-1]])


def _steps(column: Column, begins: npt.NDArray[np.bool_]) -> Whole:
    """Return the difference to the row before; a lane's first row keeps its value."""
    numbers = column.astype(np.int64)
    steps: Whole = np.diff(numbers, prepend=0)
    steps[begins] = numbers[begins]
    return steps


def _in_planes(numbers: Whole) -> bytes:
    """Return the number of byte planes (one byte), and the planes."""
    signed = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    width = (int(signed.max()).bit_length() + 7) // 8
    return bytes([width]) + b"".join(_planes(signed, width))


def _planes(numbers: npt.NDArray[np.uint64], width: int) -> Iterator[bytes]:
    lowest_first = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    for plane in range(width):
        yield lowest_first[:, plane].tobytes()
