"""``python -m tests.notebooks``: run the notebooks and keep what they show, for where none can run.

A widget needs its kernel, so only its picture (SVG) and words are kept; a notebook on a web site or
in a viewer then shows the run that was recorded here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests import figure_pictures

FOLDER = Path(__file__).parent.parent / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
OVER = {"text/plain": ""}


def main(*names: str) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.name not in names:
            continue
        notebook = nbformat.read(path, 4)
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": FOLDER}}).execute()
        notebook.metadata.pop("widgets", None)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times of day
            for output in cell.get("outputs", ()):
                output.get("data", {}).pop(WIDGET, None)
            if "outputs" in cell:  # how far something was, which is over
                cell.outputs = [one for one in cell.outputs if one.get("data") != OVER]
        figure_pictures.draw(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
