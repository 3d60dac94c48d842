"""Notebooks of tests, as plain JSON: nbformat alone would take 5 s of a processor to import."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
# In JupyterLab: wait until the notebook on screen and its kernel can be used.
READY = """async () => {
  await window.jupyterapp.restored;
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""


def write(path: Path, sources: Iterable[str]) -> None:
    """Write a notebook of code cells that have not run; its kernel is named, so that Lab asks for
    none.
    """
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{at}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for at, source in enumerate(sources)
    ]
    book = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(book), encoding="utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook; the lines of a cell or of an output are joined."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        cell["source"] = "".join(cell["source"])
        for out in cell.get("outputs", ()):
            out["data"] = {kind: _joined(data) for kind, data in out.get("data", {}).items()}
    return cells


def _joined(data: Any) -> Any:
    lines = isinstance(data, list) and all(isinstance(line, str) for line in data)
    return "".join(data) if lines else data
