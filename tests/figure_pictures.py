"""A picture beside every Plotly figure of a stored notebook, for where no script runs.

    python -m tests.figure_pictures [NAMES]      of all notebooks, as they are stored

Plotly itself draws them, in a browser without network; nothing is executed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import sync_playwright

from tests.browser import install

FOLDER = Path(__file__).parent.parent / "notebooks"
PLOTLY, PICTURES = "application/vnd.plotly.v1+json", ("image/svg+xml", "image/png")
WIDTH, HEIGHT = 900, 400  # pixels, where the figure names none
DRAW = """async ([figure, width, height]) => decodeURIComponent(
  (await Plotly.toImage(figure, { format: "svg", width, height })).replace(/^[^,]*,/, ""))"""


def bare(notebook: Any) -> Iterator[dict[str, Any]]:
    """Yield the data of each output that has a figure and no picture."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if PLOTLY in data and not any(kind in data for kind in PICTURES):
                yield data


def draw(notebook: Any) -> int:
    """Put a picture beside each figure that has none; return how many there were."""
    figures = [*bare(notebook)]
    if not figures:
        return 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=install.find(), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_context(offline=True).new_page()
        page.add_script_tag(content=(files("plotly") / "package_data/plotly.min.js").read_text())
        for data in figures:
            figure = {"data": data[PLOTLY]["data"], "layout": data[PLOTLY].get("layout", {})}
            layout = figure["layout"]
            size = [layout.get("width") or WIDTH, layout.get("height") or HEIGHT]
            data["image/svg+xml"] = small(page.evaluate(DRAW, [figure, *size]))
        browser.close()
    return len(figures)


def small(svg: str) -> str:
    """Return the picture without what only Plotly's own page uses, and on white."""
    svg = re.sub(r' (?:class|data-unformatted|data-math|data-notex)="[^"]*"', "", svg)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", svg)
    return re.sub(
        r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1
    )


def main(*names: str) -> None:
    """Draw the figures of the notebooks of these names, or of all."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.name not in names:
            continue
        notebook = nbformat.read(path, 4)
        if drawn := draw(notebook):
            nbformat.write(notebook, path)
            print(f"{path.name}: {drawn} pictures, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
