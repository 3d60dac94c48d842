"""Opens what it is told on its standard input, one path a line, and says how each went.

A process of its own: whoever reads damaged bytes may end the process, and that is to be seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

import workbench as wb
from workbench.views.pages.facts import facts


def use(path: Path) -> str:
    """Use a saved run as its user does. Returns its number of rows and their sum, as words."""
    run = wb.load(path)
    events = run.events
    own = events.select(pl.col("start_ns").sum(), pl.col("seq").sum(), pl.len()).row(0)
    few = run.store.scan().filter(pl.col("kind") == "send").select("nbytes").collect()
    run.store.since(len(run.store) - 3)
    facts(run.store.metadata)
    return f"{own} {few.height} {run.dropped}"


def main() -> None:
    for line in sys.stdin:
        try:
            answer = {"read": use(Path(line.rstrip("\n")))}
        except wb.WorkbenchError as error:
            answer = {"refused": str(error)}
        except BaseException as error:  # also a panic of polars, which is no Exception
            answer = {"raised": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
