"""Recordings of other tools, made by hand: they claim ranks, times and sizes that no job has."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable
from typing import Any

from tools.fuzz.made_up import damaged, json_text, value
from workbench.store import chakra, protobuf

LONGEST = '{"schemaVersion":1,"traceEvents":[{"ph":"X","dur":1,"ts":{}}]}'  # {}: its digits
NUMBERS: tuple[Any, ...] = (
    -1,
    0,
    1,
    7,
    4_096,
    32_767,
    32_768,
    70_000,
    10**9,
    2**31,
    2**62,
    2**63,
    2**64 - 1,
    10**30,
    -(10**18),
    1e15,
    1e308,
    float("nan"),
    float("inf"),
    "0x10",
    "9" * 5_000,
    "\ud800",
    "a\0b",
    None,
    [],
    {},
)
Case = tuple[str, bytes]  # the name of the file, what is in it


def kineto(chance: random.Random) -> Any:
    """torch.profiler's trace of one rank."""
    events = [_span(i, chance) for i in range(chance.choice((1, 3, 30)))]
    info = {"backend": "gloo", "rank": 0, "world_size": 2, "pg_config": []}
    base = {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": 0}
    return base | {"traceEvents": events}


def _span(i: int, chance: random.Random) -> dict[str, Any]:
    names = ("gloo:all_reduce", "gloo:send", "Optimizer.step#SGD.step", "ProfilerStep#1")
    cat = chance.choice(("user_annotation", "cpu_op"))
    args = {"Input Dims": [[4]], "Input type": ["float"], "Record function id": i}
    args |= {"Process Group Name": "0", "In msg nelems": 4, "dtype": "Float"}
    name = chance.choice(names)
    return {"ph": "X", "ts": 9.5 * i, "dur": 5, "name": name, "cat": cat, "args": args, "tid": 1}


def flight_recorder(chance: random.Random) -> Any:
    """The flight recorder's dump of one rank."""
    entry = {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "profiling_name": chance.choice(("nccl:all_reduce", "nccl:send 0->1")),
        "time_created_ns": 1000,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "is_p2p": chance.random() < 0.3,
    }
    ranks = str(list(range(chance.choice((2, 64, 8_192)))))
    return {"pg_config": {"0": {"name": "0", "ranks": ranks}}, "entries": [entry]}


def horovod(chance: random.Random) -> Any:
    """Horovod's timeline."""
    ready = [{"ph": "X", "name": str(rank), "ts": 1, "pid": 1} for rank in range(2)]
    return [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "t"}},
        {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},
        *ready,
        {"ph": "E", "ts": 2, "pid": 1},
        {"ph": "B", "name": "ALLREDUCE", "ts": 2, "pid": 1},
        {"ph": "E", "ts": 3, "pid": 1, "args": {"dtype": "float32", "shape": "[4]"}},
    ]


def chakra_json(chance: random.Random) -> Any:
    """PyTorch's execution trace."""
    inputs = {"shapes": [[4]], "types": ["GenericList[Tensor(float)]"], "values": [1, 2, 1, 0]}
    names = ("c10d::allreduce_", "c10d::send")
    nodes = [{"id": i, "name": chance.choice(names), "inputs": inputs} for i in range(3)]
    return {"schema": "1.0.0-chakra.0.0.4", "nodes": nodes}


TEXTS: dict[str, Callable[[random.Random], Any]] = {
    "trace.rank0.json": kineto,
    "fr_rank0.json": flight_recorder,
    "timeline.json": horovod,
    "et_rank0.json": chakra_json,
}


def recording(chance: random.Random) -> Case:
    """A file of one of the formats in which some values are something else, or all of it is."""
    way = chance.randrange(12)
    if way == 0:
        return "trace.0.et", _protobuf(chance)
    if way == 1:
        return "trace.rank0.json", _many(chance)
    if way == 2:
        return "trace.rank0.json.gz", _bomb(chance)
    name = chance.choice([*TEXTS])
    tree = TEXTS[name](chance)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        tree = _altered(tree, chance)
    data = json_text(tree, LONGEST)
    if way == 3:
        data = damaged(data, chance)
    if way == 4:
        name = chance.choice(("fr_rank1000000000000.json", "fr_rank40000.json", "fr_rank.json"))
    if way == 5:
        name, data = f"{name}.gz", gzip.compress(data)
    return name, data


def _altered(tree: Any, chance: random.Random) -> Any:
    """The same with one value, anywhere in it, replaced."""
    tree = copy.deepcopy(tree)
    node, key = [tree], 0
    while isinstance(node[key], dict | list) and node[key] and chance.random() < 0.9:
        node = node[key]
        key = chance.choice([*node] if isinstance(node, dict) else range(len(node)))
    node[key] = chance.choice(NUMBERS) if chance.random() < 0.8 else value(chance)
    return tree


def _many(chance: random.Random) -> bytes:
    """Spans that cross, or groups, or brackets, by the thousand."""
    match chance.randrange(3):
        case 0:
            spans = [_span(i, random.Random(0)) | {"ts": i, "dur": 9_000} for i in range(3_000)]
        case 1:
            spans = [
                _span(i, chance) | {"args": {"Process Group Name": f"g{i}"}} for i in range(3_000)
            ]
        case _:
            return b'{"schemaVersion":1,"traceEvents":' + b"[" * chance.choice((900, 200_000))
    return json.dumps({"schemaVersion": 1, "traceEvents": spans}).encode()


def _bomb(chance: random.Random) -> bytes:
    """A text of many megabytes in a few kilobytes."""
    pieces = chance.choice((b"[],", b"{},", b" ", b"[", b"1,")) * 100_000
    begin = b'{"schemaVersion":1,"traceEvents":['
    return gzip.compress(begin + pieces * chance.choice((30, 100)) + b"[]]}", 9)


def _protobuf(chance: random.Random) -> bytes:
    """A Chakra trace in which numbers are what 64 bits hold."""
    number = chance.choice((0, 1, 7, 10**9, 2**31, 2**62, 2**63, 2**64 - 1))
    node = [(schema, 1) for schema in (chakra.ID, chakra.START, chakra.DURATION)]
    kind = chance.choice((chakra.COLLECTIVE, chakra.SENDING, chakra.COMPUTING))
    node = [*node, (chakra.TYPE, kind)]
    node[chance.randrange(len(node))] = (node[chance.randrange(len(node))][0], number)
    attribute = protobuf.message((1, "comm_size"), (9, number))
    data = protobuf.message(*node, (chakra.NAME, "x"), (chakra.ATTR, attribute))
    whole = protobuf.delimited(protobuf.message((1, "0.0.4"))) + protobuf.delimited(data)
    return damaged(whole, chance) if chance.random() < 0.4 else whole
