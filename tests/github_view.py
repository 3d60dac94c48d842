"""Chapters as GitHub shows a stored notebook: no script, no widget, HTML without style or data.

    python -m tests.github_view FOLDER [NAMES]    write each chapter's page there, and its picture

Of an output's kinds the first of ``KINDS`` is shown, as nbconvert ranks them. HTML loses what a
sanitizer takes away: inline SVG, style, and images whose source is data. So a picture must be an
output of its own, as an image, with no HTML beside it that would be chosen in its place.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docs.site.clean import clean
from tests import notebook_files

FOLDER = Path(__file__).parent.parent / "notebooks"
IMAGES = ("image/svg+xml", "image/png")
KINDS = ("text/html", "text/markdown", *IMAGES, "text/plain")
EMBEDDED = re.compile(r'\ssrc="data:[^"]*"')
WIDTH, PIECE = 900, 2400  # pixels of the page's column, and of a picture of it
LOOK = """body { font: 15px/1.5 sans-serif; width: 900px; margin: 20px auto; color: #1f2328 }
pre { background: #f6f8fa; padding: 8px; font-size: 12px; overflow-x: auto; white-space: pre-wrap }
.out { padding-left: 12px; border-left: 3px solid #d0d7de; margin: 8px 0 } img { max-width: 100% }
table { border-collapse: collapse; font-size: 13px } td, th { border: 1px solid #d0d7de;
padding: 3px 8px; text-align: left }"""


def shown(data: dict[str, Any]) -> tuple[str, str]:
    """Return the kind that is shown of an output, and the HTML of it; "", "" where it is none."""
    kind = next((kind for kind in KINDS if kind in data), "")
    match kind:
        case "text/html":
            return kind, EMBEDDED.sub("", clean(data[kind]))
        case "text/markdown":
            return kind, prose(data[kind])
        case "image/svg+xml" | "image/png":
            content = data[kind]
            packed = base64.b64encode(content.encode()).decode() if "svg" in kind else content
            return kind, f'<img src="data:{kind};base64,{packed}">'
        case "text/plain":
            return kind, f"<pre>{escape(data[kind])}</pre>" if data[kind].strip() else ""
    return "", ""


def outputs(cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the HTML of each output of a code cell."""
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            yield "stream", f"<pre>{escape(''.join(output['text']))}</pre>"
        elif output["output_type"] == "error":
            yield "error", f"<pre>{escape(output['ename'] + ': ' + output['evalue'])}</pre>"
        else:
            yield shown(output["data"])


def prose(text: str) -> str:
    """Return Markdown as HTML, sanitized."""
    from markdown_it import MarkdownIt

    written = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return EMBEDDED.sub("", clean(written))


def page(path: Path) -> str:
    """Return the whole page of a stored notebook."""
    parts = []
    for at, cell in enumerate(notebook_files.read(path)):
        if cell["cell_type"] == "markdown":
            parts.append(prose(cell["source"]))
            continue
        parts.append(f"<small>[{at}]</small><pre>{escape(cell['source'])}</pre>")
        parts += [f'<div class="out">{html}</div>' for _, html in outputs(cell)]
    return f"<meta charset=utf-8><style>{LOOK}</style>{''.join(parts)}"


def photograph(view: Any, place: Path) -> None:
    """Write pictures of the whole page that is open, in pieces that an eye can read."""
    height = view.locator("body").bounding_box()["height"] + 40
    for number, top in enumerate(range(0, int(height), PIECE)):
        clip = {"x": 0, "y": top, "width": WIDTH + 60, "height": min(PIECE, height - top)}
        view.screenshot(path=f"{place}-{number}.png", full_page=True, clip=clip, timeout=0)


def main(folder: str, *names: str) -> None:
    """Write the pages and pictures of each."""
    from playwright.sync_api import sync_playwright

    from tests.browser import install

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=install.find(), args=["--no-sandbox", "--disable-gpu"]
        )
        context = browser.new_context(
            offline=True, java_script_enabled=False, viewport={"width": WIDTH + 60, "height": 800}
        )
        view = context.new_page()
        for path in sorted(FOLDER.glob("*.ipynb")):
            if not names or path.name in names:
                place = target / f"{path.stem}.html"
                place.write_text(page(path), encoding="utf-8")
                view.goto(place.absolute().as_uri())
                photograph(view, target / path.stem)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
