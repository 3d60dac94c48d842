"""``python -m tests.notebooks``: run the notebooks and keep what they show, for where none can run.

    python -m tests.notebooks [NAMES]    such as 01_ring_all_reduce.ipynb; without names, all
    python -m tests.notebooks --stale    say which are older than the code that they show
    python -m tests.notebooks --minutes  say how long each takes, and put it into the map

A widget needs its kernel, so only its picture (SVG) and words are kept; a notebook on a web site or
in a viewer then shows the run that was recorded here. The metadata keep how many seconds it took,
and digests of the code (see stale_chapters.py). A notebook whose outputs say the wrong thing is not
written (see notebook_gates.py): the one that was there stays.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests import chapter_minutes, notebook_gates, stale_chapters
from workbench.views.pages.widget import ABSENT

FOLDER = Path(__file__).parent.parent / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
OVER = {"text/plain": ""}
HTML = "text/html"


def main(*names: str) -> None:
    if names == ("--stale",):
        print(stale_chapters.report(FOLDER))
        return
    if names == ("--minutes",):
        print(chapter_minutes.write(FOLDER))
        return
    refused = [
        line
        for path in sorted(FOLDER.glob("*.ipynb"))
        if not names or path.name in names
        for line in execute(path)
    ]
    print(chapter_minutes.write(FOLDER))
    if refused:
        sys.exit("Not stored:\n" + "\n".join(refused))


def execute(path: Path) -> list[str]:
    """Run a notebook, and write it with its outputs, or return why they must not be stored."""
    import nbformat
    from nbclient import NotebookClient

    from tests import figure_pictures

    notebook = nbformat.read(path, 4)
    began = time.monotonic()
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": FOLDER}}).execute()
    seconds = time.monotonic() - began
    clean(notebook)
    figure_pictures.draw(notebook)
    code = stale_chapters.digests(notebook)
    notebook.metadata[stale_chapters.KEY] = {"seconds": round(seconds), "code": code}
    if faults := notebook_gates.faults(notebook):
        return [f"{path.name}: {fault}" for fault in faults]
    nbformat.write(notebook, path)
    print(f"{path.name}: {seconds:.0f} s, {path.stat().st_size / 1e3:.0f} kB")
    return []


def clean(notebook: Any) -> None:
    """Drop what needs a kernel or a page, times of day, and bars of progress that is over; fold the
    law.
    """
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            drop_live(output.get("data", {}))
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if one.get("data") != OVER]
    law = notebook.cells[-1]
    if law.cell_type == "code":  # what must hold, as asserts: a reader opens it on demand
        law.metadata.setdefault("jupyter", {})["source_hidden"] = True


def drop_live(data: dict[str, Any]) -> None:
    """Drop a widget, and the sentence of a page that did not load it: there was no page."""
    data.pop(WIDGET, None)
    if HTML in data:
        data[HTML] = "".join(data[HTML]).replace(f"<p>{ABSENT}</p>", "")
        if not data[HTML].strip():
            del data[HTML]


if __name__ == "__main__":
    main(*sys.argv[1:])
