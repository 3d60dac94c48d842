"""What is said of a run beside its picture: its spec, what is our own making, counters, state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import polars as pl
import yaml

from workbench.store import Store

NO_COUNTERS: dict[str, Any] = {
    "events": 0, "dropped": 0, "calls": 0, "iteration": -1, "loss": None,
}  # fmt: skip


class Watched(Protocol):
    """What a page needs of a run that is live (workbench.run.Run has it)."""

    @property
    def store(self) -> Store: ...
    @property
    def done(self) -> bool: ...
    @property
    def result(self) -> Any: ...


def facts(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What the header line says of a run, and what in its picture is our own making."""
    spec = yaml.safe_load(metadata.get("experiment", "")) or {}
    links = sorted((spec.get("network") or {}).get("links", {}).items())
    emulated = [_emulated(name, ", ".join(map(str, link.values()))) for name, link in links]
    notes = [f"compute padded to {pad}"] if (pad := spec.get("pad_compute")) else []
    return {
        "ranks": int(spec.get("ranks", 0)),
        "iterations": int(spec.get("iterations", -1)),
        "title": str(spec.get("strategy", "")).replace("_", " ").capitalize(),
        "emulated": emulated,
        "notes": notes,
    }


def _emulated(name: str, how: str) -> dict[str, Any]:
    source, target = name.split("->")
    words = f"link {source} → {target} emulated: {how}"
    return {"from": int(source), "to": int(target), "words": words}


def add_faults(told: dict[str, Any], events: pl.DataFrame) -> None:
    """Say what was done to the run on purpose: links changed, ranks killed, frozen, slowed."""
    done = events.filter(pl.col("kind") == "fault")
    for name, peer in done.select(pl.col("name").cast(pl.String), "peer").iter_rows():
        if name.startswith("link "):
            link = _emulated(name.removeprefix("link "), "changed by hand")
            ends = (link["from"], link["to"])
            others = [old for old in told["emulated"] if (old["from"], old["to"]) != ends]
            told["emulated"] = [*others, link]
        elif (words := f"fault: {name} rank {peer}") not in told["notes"]:
            told["notes"] = [*told["notes"], words]


def state_of(run: Watched, over: bool, events: int) -> tuple[str, str]:
    """The page's word for the run's state, and the reason in words where there is one."""
    if not over:
        return ("running", "") if events else ("starting", "")
    error = getattr(run.result, "error", None)
    if error is None:
        return "finished", ""
    return "failed", in_a_line(str(error))


def in_a_line(error: str) -> str:
    """An error's first line; of a traceback, what it was about too."""
    first, *rest = error.strip().splitlines()
    return f"{first} {rest[-1].strip()}" if rest and first.endswith(":") else first


def count(counters: dict[str, Any], events: pl.DataFrame) -> None:
    """Bring ``iteration`` and ``loss`` up to date: the newest that a metric row tells."""
    told = events.filter((pl.col("kind") == "metric") & (pl.col("name") == "loss"))
    if told.height:
        iteration, value = told.sort("iteration").select("iteration", "value").row(-1)
        if iteration >= counters["iteration"]:
            counters["iteration"] = iteration
            counters["loss"] = value if np.isfinite(value) else None
    counters["iteration"] = max(counters["iteration"], largest(events["iteration"]))


def largest(column: pl.Series) -> int:
    """The largest number of a column that is not empty."""
    return int(column.max())  # type: ignore[arg-type]
