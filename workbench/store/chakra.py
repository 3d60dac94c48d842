"""A run as Chakra execution traces, for ASTRA-sim and other simulators: a file a rank.

    FOLDER/trace.<rank>.et      GlobalMetadata, then a Node for each operation and each computation

A collective is a COMM_COLL_NODE, a message a COMM_SEND_NODE or COMM_RECV_NODE; chunks are left out,
since the simulator has algorithms of its own. Every node depends on the one before it in its lane
(``ctrl_deps``), communication on the last computation that ended before it, and computation on all
communication that had ended by then (``data_deps``). Schema: mlcommons/chakra, et_def.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from workbench.common.errors import WorkbenchError
from workbench.common.output_files import atomically
from workbench.store.protobuf import delimited, message

SCHEMA_VERSION = "0.0.4"
COMPUTING, SENDING, RECEIVING, COLLECTIVE = 4, 5, 6, 7  # NodeType
COLLECTIVES = (
    "all_reduce reduce all_gather gather scatter broadcast all_to_all reduce_scatter "
    "reduce_scatter_block barrier"
).split()  # CollectiveCommType
COMPUTE_KINDS = ("forward", "backward", "weight_grad", "optimizer", "load")
# Fields of Node and of AttributeProto.
ID, NAME, TYPE, CTRL_DEPS, DATA_DEPS, START, DURATION, ATTR = 1, 2, 3, 4, 5, 6, 7, 10
INT64, BOOL, STRING = 9, 27, 29


class Recorded(Protocol):
    """The input of an export: a store's rows, and the facts about them."""

    metadata: dict[str, str]

    def scan(self) -> pl.LazyFrame: ...


def write(store: Recorded, folder: Path) -> None:
    """Write a file for each rank into ``folder``. Raises WorkbenchError if there is nothing to
    write.
    """
    kind, p2p = pl.col("kind"), pl.col("collective") == "p2p"
    outer = kind.is_in([*COMPUTE_KINDS, "collective"]) | (kind.is_in(["send", "recv"]) & p2p)
    rows = store.scan().filter(outer).sort("rank", "start_ns", "end_ns").collect()
    if not rows.height:
        raise WorkbenchError(
            f"{folder}: a Chakra trace has operations and computations, and this run recorded none"
        )
    origin = int(rows["start_ns"].min())  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    for (rank,), of_rank in rows.group_by(["rank"], maintain_order=True):
        path = folder / f"trace.{rank}.et"
        with atomically(path, "a Chakra trace") as beside, beside.open("wb") as file:
            file.write(delimited(_metadata(store, int(str(rank)))))
            for node in _nodes(of_rank, origin):
                file.write(delimited(node))


def _metadata(store: Recorded, rank: int) -> bytes:
    title = store.metadata.get("title", "")
    attributes = [_attribute("rank", rank), _attribute("schema", "1.0.2-chakra.0.0.4")]
    if title:
        attributes.append(_attribute("title", title))
    return message((1, SCHEMA_VERSION), *((2, one) for one in attributes))


def _attribute(name: str, value: int | str | bool) -> bytes:
    number = BOOL if isinstance(value, bool) else STRING if isinstance(value, str) else INT64
    return message((1, name), (number, value))


def _nodes(rows: pl.DataFrame, origin: int) -> Iterator[bytes]:
    """Yield the nodes of one rank, in the order in which they began."""
    last_in_lane: dict[str, int] = {}
    computed: list[tuple[int, int]] = []  # end, node
    communicated: list[tuple[int, int]] = []  # not yet awaited by a computation
    for number, row in enumerate(rows.iter_rows(named=True), start=1):
        before = last_in_lane.get(row["lane"])
        last_in_lane[row["lane"]] = number
        start = row["start_ns"]
        if row["kind"] in COMPUTE_KINDS:
            done = [node for end, node in communicated if end <= start]
            communicated = [one for one in communicated if one[0] > start]
            computed = [*computed[-3:], (row["end_ns"], number)]
        else:
            done = [node for end, node in computed if end <= start][-1:]
            communicated.append((row["end_ns"], number))
        yield _node(number, row, origin, before, done)


def _node(
    number: int, row: dict[str, Any], origin: int, before: int | None, done: list[int]
) -> bytes:
    kind, attributes = row["kind"], [_attribute("is_cpu_op", True)]
    size = max(int(row["nbytes"]), 0)
    if kind in COMPUTE_KINDS:
        type_, name = COMPUTING, kind
    elif kind == "collective":
        type_, name = COLLECTIVE, str(row["collective"])
        if name in COLLECTIVES:
            attributes.append(_attribute("comm_type", COLLECTIVES.index(name)))
        attributes += [_attribute("comm_size", size), _attribute("pg_name", str(row["group"]))]
    else:
        type_, name = (SENDING, "send") if kind == "send" else (RECEIVING, "recv")
        ends = (row["rank"], row["peer"]) if kind == "send" else (row["peer"], row["rank"])
        tag = max(int(row["chunk"]), 0)
        for key, value in zip(("src", "dst", "tag", "size"), (*ends, tag, size), strict=True):
            attributes.append(_attribute(f"comm_{key}", int(value)))
    if row["iteration"] >= 0:
        attributes.append(_attribute("iteration", int(row["iteration"])))
    label = f"{name} {row['name']}".strip()
    return message(
        (ID, number),
        (NAME, label),
        (TYPE, type_),
        *([(CTRL_DEPS, before)] if before is not None else []),
        *((DATA_DEPS, node) for node in done if node != before),
        (START, (row["start_ns"] - origin) // 1000),
        (DURATION, (row["end_ns"] - row["start_ns"]) // 1000),
        *((ATTR, one) for one in attributes),
    )
