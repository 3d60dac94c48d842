"""``wb.side_by_side``: calls of two runs, or of plans, on one time axis, from one start each.

    wb.side_by_side(ring_run, tree_run)
    wb.side_by_side(wb.plan("all_reduce", "ring", ranks=8, nbytes="1 MB"), run)

The events of both are put into one table: the k-th call of the one and the k-th of the other have
the same ``op`` and begin at the same moment; their ``group`` says whose they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from workbench.common.arguments import Labels, Text, checked
from workbench.common.errors import SpecError, short
from workbench.common.units import print_seconds
from workbench.runs.loaded import Loaded
from workbench.store import table
from workbench.store.event_store import Store
from workbench.theory.provenance import plain_texts
from workbench.views.pages.facts import facts
from workbench.views.stills import calls as still_calls
from workbench.views.stills.calls import KEY

PAIRS = 8  # at most, the newest
_START_NS = 1_000_000_000  # no moment of a table is 0
OWN = ("ranks", "theory", "emulated", "link_levels", "levels")  # facts of each of the two
_APART = ("metrics", "control")  # groups that do not train


class EventSource(Protocol):
    """A run, live or loaded, a plan, or anything else that has events."""

    @property
    def events(self) -> pl.DataFrame: ...


@dataclass(frozen=True)
class SideBySide(Loaded):
    """Two algorithms on one time axis: shows itself in a notebook; ``to_html`` writes a page.

    ``labels``: what the two are called. ``seconds``: of each pair of calls, how long the first and
    the second took.
    """

    labels: tuple[str, str]
    seconds: tuple[tuple[float, float], ...]

    @checked
    def view(self, scene: Text = "pair", *, moment: Text = "") -> Any:
        """Return the view as a notebook's widget, opened with ``scene``, at ``moment``."""
        return super().view(scene, moment=moment)

    def __repr__(self) -> str:
        return _caption(self.labels, self.seconds)


@checked
def side_by_side(
    first: EventSource | pl.DataFrame,
    second: EventSource | pl.DataFrame,
    *,
    labels: Labels | None = None,
) -> SideBySide:
    """Show the collectives of two runs on one scale.

    Calls of the same operation and size are paired, the newest eight pairs; without such calls, the
    newest of each. ``first``, ``second``: runs, live or loaded, plans, or tables of events.
    ``labels``: their names; if not given, their algorithms. Raises SpecError if one has no complete
    collective.

    >>> ring = wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB")
    >>> wb.side_by_side(ring, wb.plan("all_reduce", "tree", ranks=4, nbytes="1 MB"))
    """
    return pair_of(first, second, labels)


def pair_of(
    first: EventSource | pl.DataFrame,
    second: EventSource | pl.DataFrame,
    labels: tuple[str, str] | None,
    *,
    largest: bool = False,
) -> SideBySide:
    """Do the same; ``largest``: of each take the calls of its largest tensor only."""
    tables = [_of_collectives(*each) for each in (("first", first), ("second", second))]
    calls = [_calls(table, place) for table, place in zip(tables, ("first", "second"), strict=True)]
    if largest:
        calls = [_largest(each) for each in calls]
    pairs = _pairs(*calls)
    names = _names(labels, [row["algorithm"] for row in pairs[-1]])
    starts, at = [], _START_NS
    for pair in pairs:
        starts.append(at)
        longest = max(call["end_ns"] - call["start_ns"] for call in pair)
        at += longest + longest // 4 + 1
    events = pl.concat(
        _moved(table, [pair[side] for pair in pairs], starts, names[side])
        for side, table in enumerate(tables)
    )
    ranks = 1 + max(max(table["rank"].unique()) for table in tables)
    seconds = tuple(tuple((c["end_ns"] - c["start_ns"]) / 1e9 for c in pair) for pair in pairs)
    pair_facts = {
        side: {"group": name, "label": name, **_facts_of(source)}
        for side, name, source in zip(("left", "right"), names, (first, second), strict=True)
    }
    metadata = {
        "title": _title(names, [call["collective"] for call in pairs[-1]]),
        "words": _caption(names, seconds),
        "ranks": str(ranks),
        "pair": json.dumps(pair_facts),
        "scene": "pair",
    }
    return SideBySide(Store.from_frame(events, metadata), names, seconds)


def _of_collectives(which: str, source: EventSource | pl.DataFrame) -> pl.DataFrame:
    events = source if isinstance(source, pl.DataFrame) else getattr(source, "events", None)
    if not isinstance(events, pl.DataFrame) or not {*table.SCHEMA} <= {*events.columns}:
        raise SpecError(
            f"side_by_side({which}={short(source)}): {which} must be a run, live or loaded, a "
            "plan, or a table of their events"
        )
    p = pl.col
    rows = plain_texts(events)
    none = p("group").is_in(_APART) | p("collective").is_in(["p2p", ""])
    return rows.filter((p("op") >= 0) & ~none)


def _facts_of(source: EventSource | pl.DataFrame) -> dict[str, Any]:
    """Return what of a run is emulated, as its pages say (``notes``), and ``own``, the facts
    that its picture needs: of its links, and what its algorithms should do.
    """
    store = getattr(source, "store", None)
    if store is None:
        return {"notes": [], "own": {}}
    known = facts(store.metadata)
    return {
        "notes": [*(link["words"] for link in known["emulated"]), *known["notes"]],
        "own": {name: known[name] for name in OWN if known[name]},
    }


def _calls(rows: pl.DataFrame, which: str) -> list[dict[str, Any]]:
    """Return the complete collectives, oldest first: key, operation, algorithm, bytes, times."""
    result = still_calls.calls(rows).filter("complete").to_dicts()
    if not result:
        raise SpecError(
            f"side_by_side shows collectives, and the {which} has none that all its ranks completed"
        )
    return result


def _largest(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    most = max(call["nbytes"] for call in calls)
    return [call for call in calls if call["nbytes"] == most]


def _pairs(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pair the newest call with the newest similar one, and so on back; return the oldest first."""
    left, pairs = list(second), list[tuple[dict[str, Any], dict[str, Any]]]()
    for call in reversed(first):
        alike = [at for at, other in enumerate(left) if _alike(call, other)]
        if alike and len(pairs) < PAIRS:
            pairs.append((call, left[alike[-1]]))
            left = left[: alike[-1]]
    return pairs[::-1] or [(first[-1], second[-1])]


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[what] == other[what] for what in ("collective", "nbytes"))


def _names(labels: tuple[str, str] | None, algorithms: list[str]) -> tuple[str, str]:
    if labels is not None and len({*labels}) != 2:
        raise SpecError(f"labels must be two different names, not {labels!r}")
    if labels is not None:
        return labels
    one, other = (name.replace("_", " ") for name in algorithms)
    return (f"{one}, first", f"{one}, second") if one == other else (one, other)


def _title(names: tuple[str, str], operations: list[str]) -> str:
    alike = f" {operations[0].replace('_', '-')}" if len({*operations}) == 1 else ""
    title = f"{names[0]} and {names[1]}{alike}"
    return title[:1].upper() + title[1:]


def _moved(
    rows: pl.DataFrame, calls: list[dict[str, Any]], starts: list[int], name: str
) -> pl.DataFrame:
    """Return these calls' rows, each moved to its new start.

    They are numbered from 0, in a group and lanes of the name ``name``.
    """
    where = pl.DataFrame(
        {
            **{key: [call[key] for call in calls] for key in KEY},
            "moved": [start - call["start_ns"] for start, call in zip(starts, calls, strict=True)],
            "number": range(len(calls)),
        },
        schema={**{key: rows.schema[key] for key in KEY}, "moved": pl.Int64, "number": pl.Int64},
    )
    p = pl.col
    return (
        rows.join(where, on=KEY, maintain_order="left")
        .with_columns(
            start_ns=p("start_ns") + p("moved"),
            end_ns=p("end_ns") + p("moved"),
            op=p("number").cast(rows.schema["op"]),
            iteration=pl.lit(-1, rows.schema["iteration"]),
            generation=pl.lit(0, rows.schema["generation"]),
            group=pl.lit(name),
            lane=p("lane") + pl.lit(f" {name}"),
        )
        .select(rows.columns)
    )


def _caption(labels: tuple[str, str], seconds: tuple[tuple[float, ...], ...]) -> str:
    """Return a caption: how long the calls of the last pair took."""
    last = [print_seconds(each) for each in seconds[-1]]
    text = f"{labels[0]}: {last[0]}, {labels[1]}: {last[1]}"
    return text if len(seconds) == 1 else f"{text} (the last of {len(seconds)} pairs of calls)"
