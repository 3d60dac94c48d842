"""Chakra execution traces, one a rank: protobuf (``*.et``), or the JSON of PyTorch's
ExecutionTraceObserver.

Nodes have a time and a duration in whole microseconds, or none: PyTorch's have none, and generated
traces often none either. Those are laid out in the order of their dependencies, one microsecond
each, which says which node comes after which, and nothing about time.

Schema: mlcommons/chakra, et_def.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.formats._recording import File, Recording, by_rank, bytes_of
from workbench.formats.kineto import operation_name
from workbench.store import chakra as schema
from workbench.store import protobuf

NAME = "Chakra execution trace"
TIMED = "operations only, from a Chakra trace, to the microsecond"
UNTIMED = "operations only, from a Chakra trace without times: their order"
_KINDS = {"optim": "optimizer", "backward": "backward", "Backward": "backward", "load": "load"}


@dataclass
class Node:
    """A node, from either form of the trace. ``start``, ``duration``: in µs."""

    number: int
    name: str
    type: int
    before: Sequence[int]
    start: int = 0
    duration: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


def matches(file: File) -> bool:
    head = file.head
    if b'"schema"' in head and b"chakra" in head and b'"nodes"' in head:
        return True
    return file.path.suffix == ".et" and _metadata(head) is not None


def _metadata(data: bytes) -> Mapping[int, list[Any]] | None:
    """Return the fields of a trace's first message; None if that is not GlobalMetadata."""
    try:
        first = protobuf.fields(next(iter(protobuf.messages(data)), b""))
    except ValueError:
        return None
    return first if set(first) <= {1, 2} and isinstance(first.get(1, [b""])[0], bytes) else None


def read(files: Sequence[File]) -> Recording:
    result = Recording(NAME, TIMED)
    for rank, file in by_rank([(file.rank_in_name(), file) for file in files]).items():
        nodes = [*(_of_json(file) if file.head.lstrip()[:1] == b"{" else _of_protobuf(file))]
        if nodes and not any(node.duration for node in nodes):
            result.precision = UNTIMED
            _lay_out(nodes)
        _add(result, rank, nodes)
    return result


def _of_protobuf(file: File) -> Iterator[Node]:
    stream = protobuf.messages(file.data())
    next(stream, None)
    for data in stream:
        one = protobuf.fields(data)
        facts = dict(_attribute(attribute) for attribute in one.get(schema.ATTR, []))
        before = [
            number
            for dependencies in (schema.CTRL_DEPS, schema.DATA_DEPS)
            for number in protobuf.packed(one.get(dependencies, []))
        ]
        yield Node(
            one.get(schema.ID, [0])[0],
            one.get(schema.NAME, [b""])[0].decode(errors="replace"),
            one.get(schema.TYPE, [0])[0],
            before,
            one.get(schema.START, [0])[0],
            one.get(schema.DURATION, [0])[0],
            facts,
        )


_VALUES: Mapping[int, Callable[[Any], Any]] = {
    3: protobuf.double,
    7: protobuf.signed,
    9: protobuf.signed,
    11: int,
    13: int,
    27: bool,
    29: lambda data: data.decode(errors="replace"),
}


def _attribute(data: bytes) -> tuple[str, Any]:
    one = protobuf.fields(data)
    name = one.get(1, [b""])[0].decode(errors="replace")
    return name, next((read(one[key][0]) for key, read in _VALUES.items() if key in one), None)


def _of_json(file: File) -> Iterator[Node]:
    """Yield the operations of PyTorch's form: it has every operator, and no times."""
    for one in file.json()["nodes"]:
        name = str(one["name"])
        if not name.startswith("c10d::"):
            continue
        inputs = one.get("inputs") or {}
        operation = operation_name(name.removeprefix("c10d::"))
        shapes = (inputs.get("shapes") or [[]])[0]
        types = str((inputs.get("types") or [""])[0]).partition("Tensor(")[2].partition(")")[0]
        facts: dict[str, Any] = {"comm_size": bytes_of(shapes, types), "operation": operation}
        values = inputs.get("values") or []
        kind = schema.COLLECTIVE
        if operation in ("send", "recv") and len(values) > 2 and isinstance(values[2], int):
            kind = schema.SENDING if operation == "send" else schema.RECEIVING
            facts["comm_dst" if operation == "send" else "comm_src"] = values[2]
        yield Node(int(one["id"]), operation, kind, [], facts=facts)


def _lay_out(nodes: Sequence[Node]) -> None:
    """Give nodes without times a place each: 1 µs, after all that they depend on."""
    ends: dict[int, int] = {}
    at = 0
    for node in sorted(nodes, key=lambda node: node.number):
        at = max([at, *(ends.get(number, 0) for number in node.before)])
        node.start, node.duration = at, 1
        ends[node.number] = at = at + 1


def _add(result: Recording, rank: int, nodes: Sequence[Node]) -> None:
    numbers: dict[tuple[Any, ...], int] = {}
    for node in sorted(nodes, key=lambda node: (node.start, node.number)):
        start, end = 1000 * node.start, 1000 * (node.start + node.duration)
        facts = node.facts
        more: dict[str, Any] = {"iteration": int(facts.get("iteration", -1))}
        if node.type == schema.COMPUTING:
            kind = next((k for word, k in _KINDS.items() if word in node.name), "forward")
            result.add(rank, "compute", kind, start, end, name=node.name[:80], **more)
            continue
        more |= {"nbytes": int(facts.get("comm_size") or 0), "algorithm": ""}
        more["group"] = str(facts.get("pg_name") or "default")
        if node.type in (schema.SENDING, schema.RECEIVING):
            kind = "send" if node.type == schema.SENDING else "recv"
            peer = int(facts.get("comm_dst" if kind == "send" else "comm_src", -1))
            tag = int(facts.get("comm_tag", 0))
            key: tuple[Any, ...] = (kind, peer, tag)
            more |= {"peer": peer, "chunk": tag, "step": 0, "slot": 0, "collective": "p2p"}
            lane = kind
        elif node.type == schema.COLLECTIVE:
            kind, lane, key = "collective", "comm", (more["group"],)
            at = int(facts.get("comm_type", -1))
            known = schema.COLLECTIVES[at] if 0 <= at < len(schema.COLLECTIVES) else node.name
            more["collective"] = str(facts.get("operation", known))
        else:
            continue
        numbers[key] = more["op"] = numbers.get(key, -1) + 1
        result.add(rank, lane, kind, start, end, **more)
