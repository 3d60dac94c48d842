"""Saved runs: damaged files, files that were made by hand, and a process that opens them."""

from __future__ import annotations

import contextlib
import json
import random
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from tests.synthetic import training
from tools.fuzz.made_up import text, value
from workbench.store.checksum import BLANK, seal
from workbench.store.event_store import Store
from workbench.store.parquet import FORMAT
from workbench.store.table import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120.0  # seconds for one file, on a busy machine


class Opener:
    """The process of opening.py. A new one after one that ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def use(self, path: Path) -> dict[str, str]:
        """Return what it said of the saved run; "ended" without a word, "hung" without an end."""
        return self.ask("run", str(path))["answer"]  # type: ignore[no-any-return]

    def ask(self, use: str, what: Any) -> dict[str, Any]:
        """Return what it said (``answer``), in how many seconds of processor time, and how much the
        process had grown.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.fuzz.opening"],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([use, what]) + "\n")
        process.stdin.flush()
        silent = {"seconds": 0.0, "megabytes": 0.0}
        if not select.select([process.stdout], [], [], DEADLINE)[0]:
            self.close()
            return silent | {"answer": {"hung": f"{DEADLINE} s"}}
        if line := process.stdout.readline():
            return dict(json.loads(line))
        code = process.wait(DEADLINE)
        self.close()
        return silent | {"answer": {"ended": str(code)}}

    def use_bytes(self, data: bytes, folder: Path) -> dict[str, str]:
        """The same of a file that holds these bytes."""
        path = folder / "made_up.parquet"
        path.write_bytes(data)
        return self.use(path)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None


def run(folder: Path) -> Path:
    """A run of some hundred rows, saved."""
    path = folder / "run.parquet"
    metadata = {"experiment": "strategy: data_parallel\nranks: 4\n", "cores": "2"}
    Store.from_frame(training(6), metadata).save(path)
    return path


def made_by_hand(chance: random.Random) -> bytes:
    """A real Parquet file that is not what ``store.save`` writes: other columns, types, numbers,
    and metadata.
    """
    frame = training(1).head(50)
    for _ in range(chance.choice((0, 1, 2))):
        name = chance.choice([*SCHEMA])
        match chance.randrange(5):
            case 0:
                frame = frame.drop(name, strict=False)
            case 1 if name in frame.columns:
                frame = frame.with_columns(pl.lit(None).alias(name))
            case 2 if name in frame.columns:
                odd = chance.choice((2**63 - 1, -(2**63), 1e300, "x", True, [1], b"\xff"))
                frame = frame.with_columns(pl.Series(name, [odd] * frame.height))
            case 3:
                frame = frame.with_columns(pl.lit(1).alias(text(chance) or "x"))
            case _ if name in frame.columns:
                frame = frame.with_columns(pl.col(name).cast(pl.String))
    document: dict[str, Any] = {
        "format": chance.choice((FORMAT, FORMAT, FORMAT, 1)),
        "checksum": BLANK,
        "dropped": 0,
        "metadata": {},
    }
    if chance.random() < 0.5:
        names = ("experiment", "pipeline", "overhead", "samples", "planned", "cores", "ranks")
        junk = chance.choice(("[", "{}", "null", "3", "ranks: x", '{"a": 1}', "a: &b [*b]", "[[]]"))
        document["metadata"] = {chance.choice(names): junk}
    if chance.random() < 0.5:
        document[chance.choice([*document])] = value(chance)
    try:
        facts = json.dumps(document)
    except ValueError:
        facts = "{"
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        path = Path(file.name)
        frame.write_parquet(path, metadata={"workbench": facts})
        with contextlib.suppress(AssertionError):  # the document has no place for a checksum
            seal(path)
        return path.read_bytes()
