"""Pictures of a stored notebook as images, for where no script runs and HTML is sanitized.

    python -m tests.figure_pictures [NAMES]      of all notebooks, as they are stored

A Plotly figure gets one beside it, which Plotly itself draws, in a browser without network. An
image within HTML becomes an output of its own: GitHub prefers HTML to an image, and takes images
of data out of it. Beside each SVG stands a PNG, which JupyterLab shows even in a notebook that it
does not trust, such as one that was just cloned. Nothing is executed.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser import install

FOLDER = Path(__file__).parent.parent / "notebooks"
PLOTLY, HTML = "application/vnd.plotly.v1+json", "text/html"
SVG, PNG = PICTURES = ("image/svg+xml", "image/png")
INNER = re.compile(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]*)">')
COLORS = 64  # of a PNG: line art and text
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


def take_apart(notebook: Any) -> int:
    """Make each image within HTML an output of its own, before what is left of the HTML; return how
    many there were.
    """
    moved = 0
    for cell in notebook["cells"]:
        parts = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            images = INNER.findall(data.get(HTML, ""))
            moved += len(images)
            if images and not (rest := INNER.sub("", data[HTML])).strip():
                data.pop(HTML)
                data.setdefault(SVG, _text(images[0]))
            elif images:
                data[HTML] = rest
                parts += [
                    nbformat.NotebookNode(
                        output_type="display_data", data={SVG: _text(image)}, metadata={}
                    )
                    for image in images
                ]
            parts.append(output)
        if "outputs" in cell:
            cell["outputs"] = parts
    return moved


def _text(packed: str) -> str:
    return base64.b64decode(packed).decode()


def without_png(notebook: Any) -> Iterator[dict[str, Any]]:
    """Yield the data of each output that has an SVG alone."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if SVG in data and PNG not in data and PLOTLY not in data:
                yield data


def draw(notebook: Any) -> int:
    """Put a picture beside each figure that has none, and a PNG beside each SVG; return how many
    pictures were moved or drawn.
    """
    moved = take_apart(notebook)
    figures, stills = [*bare(notebook)], [*without_png(notebook)]
    if not figures and not stills:
        return moved
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
            data[SVG] = small(page.evaluate(DRAW, [figure, *size]))
        for data in stills:
            data[PNG] = photograph(page, data[SVG])
        browser.close()
    return moved + len(figures) + len(stills)


def photograph(page: Page, svg: str) -> str:
    """Return an SVG as a PNG of few colors, in base64."""
    packed = base64.b64encode(svg.encode()).decode()
    page.set_content(f'<img style="display:block" src="data:{SVG};base64,{packed}">')
    picture = Image.open(io.BytesIO(page.locator("img").screenshot())).convert("RGB")
    file = io.BytesIO()
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


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
