"""torch's flight recorder, dumped as JSON, one file a rank: what was called before a job hung.

    torch._C._distributed_c10d._dump_fr_trace_json(True, False)    # TORCH_FR_BUFFER_SIZE=2000

Each entry has the wall clock at which it was called. NCCL's also have when an operation was seen
to begin and to end; Gloo's have not, and are instants here. Where ranks differ in their calls, what
is missing is said in words (``findings``).

The dumps that torch writes by itself when NCCL's watchdog fires are pickles, and are refused.
https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.formats._recording import File, Recording, by_rank, bytes_of
from workbench.formats.kineto import operation_name

NAME = "torch flight recorder"
PRECISION = "operations only, by torch's flight recorder: when they were called"
_ENDS = re.compile(r"(\d+)(?:->|<-)(\d+)")


def matches(file: File) -> bool:
    head = file.head
    return (
        head.lstrip().startswith(b"{")
        and b'"entries"' in head
        and (b'"pg_config"' in head or b'"collective_seq_id"' in head)
    )


def read(files: Sequence[File]) -> Recording:
    result = Recording(NAME, PRECISION)
    by_group: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for rank, file in by_rank([(file.rank_in_name(), file) for file in files]).items():
        text = file.json()
        for one in (text.get("pg_config") or {}).values():
            members = re.findall(r"\d+", str(one.get("ranks", "")))
            if members:
                result.claim(max(map(int, members)) + 1)
        for entry in text["entries"]:
            group = _group(entry)
            _add(result, rank, group, entry)
            if not entry.get("is_p2p"):
                by_group.setdefault(group, {}).setdefault(rank, []).append(entry)
    for group, ranks in by_group.items():
        result.findings.extend(_missing(group, ranks))
    return result


def _group(entry: Mapping[str, Any]) -> str:
    name, description = [*(entry.get("process_group") or ["", ""]), "", ""][:2]
    return "default" if description == "default_pg" else str(description or name)


def _operation(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return the backend and the operation of an entry: "gloo:all_reduce"."""
    backend, _, name = str(entry.get("profiling_name", "")).rpartition(":")
    return backend, operation_name(name.split()[0] if name.split() else "")


def _add(result: Recording, rank: int, group: str, entry: Mapping[str, Any]) -> None:
    start = int(entry["time_created_ns"])
    start = int(entry.get("time_discovered_started_ns") or start) or start
    end = max(int(entry.get("time_discovered_completed_ns") or 0), start)
    backend, operation = _operation(entry)
    sizes = [
        bytes_of(entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes"))
        for side in ("input", "output")
    ]
    more: dict[str, Any] = {"group": group, "algorithm": backend, "nbytes": max(sizes)}
    if entry.get("is_p2p"):
        ends = _ENDS.search(str(entry.get("profiling_name", "")))
        peer = int(ends[2]) if ends else -1
        more |= {"collective": "p2p", "peer": peer, "op": int(entry.get("p2p_seq_id", -1))}
        kind = "recv" if "recv" in str(entry.get("profiling_name")) else "send"
        result.add(rank, kind, kind, start, end, step=0, chunk=0, slot=0, **more)
        return
    number = int(entry["collective_seq_id"]) - 1
    result.add(rank, "comm", "collective", start, end, collective=operation, op=number, **more)


def _missing(group: str, ranks: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return sentences: which ranks never called an operation of the others, or called another."""
    newest = {
        rank: max(int(one["collective_seq_id"]) for one in entries)
        for rank, entries in ranks.items()
    }
    most, result = max(newest.values()), []
    behind = {rank: last for rank, last in newest.items() if last < most}
    if behind:
        at = min(behind.values()) + 1
        ahead = sorted(rank for rank in newest if rank not in behind)
        names = {_operation(one)[1] for one in ranks[ahead[0]] if one["collective_seq_id"] == at}
        what = f"{next(iter(names), 'operation')} {at - 1} of group {group}"
        late = sorted(rank for rank, last in behind.items() if last < at)
        result.append(f"{_ranks(late)} never called {what}; {_ranks(ahead)} did.")
    calls: dict[int, dict[str, list[int]]] = {}
    for rank, own in ranks.items():
        for one in own:
            key = f"{_operation(one)[1]} of {one.get('input_sizes')}"
            calls.setdefault(int(one["collective_seq_id"]), {}).setdefault(key, []).append(rank)
    for number, kinds in sorted(calls.items()):
        operations = {key.partition(" ")[0] for key in kinds}
        if len(operations) > 1:
            missing = "; ".join(f"{_ranks(those)} {key}" for key, those in kinds.items())
            result.append(
                f"Ranks disagree about operation {number - 1} of group {group}: {missing}."
            )
            break
    return result


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}".capitalize()
