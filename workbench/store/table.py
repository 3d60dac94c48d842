"""The event table as polars sees it: its schema, and how records of ranks become rows of it.

``SCHEMA`` is the contract: exactly these columns, in this order, without nulls (integers -1,
strings "", ``value`` NaN). Strings are Categorical: four bytes a row, compared with any string as
usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.common.errors import SpecError, WorkbenchError, short
from workbench.recording import events
from workbench.recording.events import CODE, COLUMNS, CONTEXT, KINDS, PAGE, ROW
from workbench.shared_memory.ordering import observe

Records = npt.NDArray[np.void]  # of events.ROW or events.CONTEXT

MOST_RANKS = 1 << 15  # that a file may claim: a record has 16 bits for a peer

_STRINGS = ("lane", "kind", "collective", "algorithm", "phase", "group", "name")
_WIDE = ("seq", "start_ns", "end_ns", "op", "nbytes", "iteration", "stage", "version")
_OF_CONTEXT = ("generation", "op", "iteration", "microbatch", "stage", "version")
_NAMES_OF_CONTEXT = ("collective", "algorithm", "group")


def _dtype(column: str) -> pl.DataType:
    if column in _STRINGS:
        return pl.Categorical()
    return pl.Float64() if column == "value" else pl.Int64() if column in _WIDE else pl.Int32()


SCHEMA = pl.Schema({column: _dtype(column) for column in COLUMNS})
EMPTY = pl.DataFrame(schema=SCHEMA)


class Names:
    """Numbers for strings, one numbering for all ranks of a store; number 0 is ""."""

    LIMIT = 65_535  # a record has 16 bits for a name
    FULL = "(more names than a store can hold)"

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._series = pl.Series([""], dtype=pl.Categorical)

    def number(self, text: str) -> int:
        known = self._numbers.get(text)
        if known is not None:
            return known
        if len(self._numbers) >= self.LIMIT:
            text = self.FULL
        return self._numbers.setdefault(text, len(self._numbers))

    def texts(self, numbers: npt.NDArray[np.integer]) -> pl.Series:
        """Return the strings of these numbers, as a Categorical column."""
        if len(self._series) < len(self._numbers):
            self._series = pl.Series(list(self._numbers), dtype=pl.Categorical)
        return self._series.gather(numbers.astype(np.uint32))

    def since(self, first: int) -> list[str]:
        """Return the strings that are numbered from ``first`` on."""
        return list(islice(self._numbers, first, None)) if first < len(self._numbers) else []


class Memory(Protocol):
    """A rank's trace (recording/events.py), as it is at this moment."""

    def __getitem__(self, part: slice, /) -> memoryview: ...


class NameTable:
    """A rank's names as the store's numbers: ``numbers[the rank's number]``, 0 ("") for none.

    ``number`` gives the store's number of a text; ``memory`` is the rank's trace.
    """

    def __init__(self, number: Callable[[str], int], memory: Memory) -> None:
        self.numbers = np.zeros(65_536, np.uint16)
        self.texts: list[str] = []
        self._number, self._memory = number, memory
        self._used = 0

    def read(self) -> None:
        """Take in what was published since the last call."""
        words = self._memory[:PAGE].cast("q")
        published = min(observe(words, events.H_NAMES), events.NAMES_BYTES)
        if self._used >= published:
            return
        names = bytes(self._memory[events.NAMES_AT + self._used : events.NAMES_AT + published])
        at, first = 0, len(self.texts)
        while at < len(names):
            behind = at + 1 + names[at]
            self.texts.append(names[at + 1 : behind].decode(errors="replace"))
            at = behind
        self.numbers[first : len(self.texts)] = [*map(self._number, self.texts[first:])]
        self._used += at

    def text(self, number: int) -> str:
        """Return the text of the rank's number, also one published since the last ``read``."""
        if number >= len(self.texts):
            self.read()
        return self.texts[number] if 0 <= number < len(self.texts) else ""

    def translate(self, records: Records, *columns: str) -> None:
        """Translate the rank's numbers in these columns to the store's, in place."""
        for column in columns:
            records[column] = self.numbers[records[column]]


NAMES_OF_CONTEXT = ("collective", "algorithm", "group", "lane")  # as a rank writes one


def resolve(rows: Records, known: Records, names: NameTable) -> list[tuple[int, Records, Records]]:
    """Yield ``rows`` by lanes: the lane's name, its rows, the contexts that they index. All names
    are the store's; the rows' numbers are the lane's own; ``rows`` is changed in place.

    ``known`` holds context i at i % len(known), already translated. Rows whose context is not
    there, or whose kind does not exist, are left out.
    """
    ids = rows["context"].astype(np.int64)
    good = (ids > 0) & (known["seq"][ids % len(known)] == ids) & (rows["kind"] < len(KINDS))
    if not good.all():
        rows, ids = rows[good], ids[good]
    if not len(rows):
        return []
    starts = np.flatnonzero(_changes(ids))
    sizes = np.diff(starts, append=len(ids))
    used = known[ids[starts] % len(known)]
    rows["context"] = np.repeat(np.arange(len(starts)), sizes)
    rows["seq"] -= np.repeat(used["first"], sizes)
    names.translate(rows, "name", "phase")
    result = []
    lanes = [*np.flatnonzero(_changes(used["lane"])), len(used)]
    for first, stop in pairwise(lanes):  # another lane follows only where one was given back
        block = rows[starts[first] : starts[stop] if stop < len(starts) else None]
        block["context"] -= np.uint32(first)
        result.append((int(used["lane"][first]), block, used[first:stop]))
    return result


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one lane, self-contained: names are numbers of the store's ``Names``, and a row's
    ``context`` is an index into ``contexts``."""

    rank: int
    lane: int
    rows: Records
    contexts: Records


def concatenated(records: Sequence[Records]) -> Records:
    """Return records one after the other: as plain bytes, as numpy would copy them field by field,
    eight times slower.
    """
    dtype = records[0].dtype
    whole = np.concatenate(
        [np.ascontiguousarray(each).view(f"V{dtype.itemsize}") for each in records]
    )
    return whole.view(dtype)


def to_frame(batches: Sequence[Batch], names: Names) -> pl.DataFrame:
    """Return the table's rows for these batches, in their order."""
    if not batches:
        return EMPTY
    sizes = np.array([len(batch.rows) for batch in batches])
    firsts = np.cumsum([0] + [len(batch.contexts) for batch in batches[:-1]])
    rows = concatenated([batch.rows for batch in batches])
    contexts = concatenated([batch.contexts for batch in batches])
    which = rows["context"] + np.repeat(firsts, sizes)

    columns: dict[str, npt.NDArray[np.generic] | pl.Series] = {
        "rank": np.repeat(np.array([batch.rank for batch in batches], np.int32), sizes),
        "lane": names.texts(
            np.repeat(np.array([batch.lane for batch in batches], np.uint32), sizes)
        ),
        "kind": _KINDS.gather(rows["kind"].astype(np.uint32)),
        "phase": names.texts(rows["phase"]),
        "name": names.texts(rows["name"]),
        "seq": rows["seq"] - 1,
    }
    columns |= {name: names.texts(contexts[name][which]) for name in _NAMES_OF_CONTEXT}
    columns |= {name: contexts[name][which] for name in _OF_CONTEXT}
    for name in COLUMNS:
        if name not in columns:
            columns[name] = np.ascontiguousarray(rows[name])
    return pl.DataFrame([pl.Series(name, columns[name], dtype=SCHEMA[name]) for name in COLUMNS])


_KINDS = pl.Series(KINDS, dtype=pl.Categorical)


def from_frame(frame: pl.DataFrame, number: Callable[[str], int]) -> list[Batch]:
    """Undo ``to_frame``: yield the frame's rows in their order, a batch for each stretch of one
    lane.

    ``number`` gives a text its number in the store. Rows of no known kind are left out.
    """
    kinds = _as_numbers(frame["kind"], lambda text: CODE.get(text, len(KINDS)))
    if (kinds == len(KINDS)).any():
        frame, kinds = frame.filter(kinds < len(KINDS)), kinds[kinds < len(KINDS)]
    if not frame.height:
        return []
    columns = {name: _as_numbers(frame[name], number) for name in _STRINGS if name != "kind"}
    columns |= {name: frame[name].to_numpy() for name in ("rank", *_OF_CONTEXT)}

    rows: Records = np.zeros(frame.height, ROW)
    for name in ("start_ns", "end_ns", "peer", "step", "chunk", "slot", "nbytes", "value"):
        rows[name] = frame[name].to_numpy()
    rows["kind"], rows["seq"] = kinds, frame["seq"].to_numpy() + 1
    rows["name"], rows["phase"] = columns["name"], columns["phase"]

    lanes = _changes(columns["rank"], columns["lane"])
    changes = lanes | _changes(*(columns[name] for name in (*_OF_CONTEXT, *_NAMES_OF_CONTEXT)))
    at = np.flatnonzero(changes)
    contexts: Records = np.zeros(len(at), CONTEXT)
    for name in (*_OF_CONTEXT, *_NAMES_OF_CONTEXT):
        contexts[name] = columns[name][at]
    which = np.cumsum(changes) - 1
    firsts = np.flatnonzero(lanes)
    batches = []
    for first, stop in zip(firsts, [*firsts[1:], frame.height], strict=True):
        block = slice(which[first], which[stop - 1] + 1)
        rows["context"][first:stop] = which[first:stop] - which[first]
        rank, lane = int(columns["rank"][first]), int(columns["lane"][first])
        batches.append(Batch(rank, lane, rows[first:stop], contexts[block]))
    return batches


def _as_numbers(series: pl.Series, number: Callable[[str], int]) -> npt.NDArray[np.uint16]:
    """Return the column's strings as numbers."""
    if not len(series):
        return np.zeros(0, np.uint16)
    codes, categories = series.to_physical().to_numpy(), series.unique()
    numbers: npt.NDArray[np.uint16] = np.zeros(int(codes.max()) + 1, np.uint16)
    numbers[categories.to_physical().to_numpy()] = [
        number(text) for text in categories.cast(pl.String)
    ]
    result: npt.NDArray[np.uint16] = numbers[codes]
    return result


def _changes(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Return where a row differs from the one before it; the first one does."""
    changes = np.ones(len(columns[0]), bool)
    changes[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return changes


def conform(frame: pl.DataFrame | pl.LazyFrame, where: str) -> pl.LazyFrame:
    """Return ``frame`` with the contract's columns, types and order, and no nulls.

    Raises WorkbenchError, which begins with ``where``, if columns are missing.
    """
    if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
        raise SpecError(f"{where}: must be a polars.DataFrame or LazyFrame, not {short(frame)}")
    result = frame.lazy().collect_schema()
    missing = [column for column in COLUMNS if column not in result]
    if missing:
        readable = [column for column in COLUMNS if column in result] or result.names()
        raise WorkbenchError(
            f"{where}: expected the {len(COLUMNS)} columns of the event table; missing: "
            f"{', '.join(missing)}. Found, and polars can read: {', '.join(readable) or 'none'}. "
            "It was written by another version or by something else: record the run again, or add "
            "the missing columns (-1, '' or NaN)."
        )
    return frame.lazy().select(_conform(column, result[column]) for column in COLUMNS)


def _conform(column: str, dtype: pl.DataType) -> pl.Expr:
    target = SCHEMA[column]
    if column not in _STRINGS:
        return pl.col(column).cast(target).fill_null(float("nan") if column == "value" else -1)
    if dtype == target:
        return pl.col(column).fill_null("")
    return (
        pl.col(column).cast(pl.String).fill_null("").cast(target)
    )  # an Enum has categories of its own
