"""Chapters as pages: cells of the stored notebooks, and what they show."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.site.clean import clean
from docs.site.markdown import page

LONGEST = 60  # lines of an output that are shown unfolded


def chapter(notebook: Path, pictures: Path, replay: str = "") -> str:
    """Return the page of a notebook. Its pictures are written to ``pictures``; ``replay`` is the
    address of a run that the page embeds.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = [part for at, cell in enumerate(cells) for part in _cell(cell, at, notebook, pictures)]
    if replay:
        parts.insert(1, frame(replay, "A run of this chapter, replayed"))
    link = f"The notebook: `notebooks/{notebook.name}`, which `make lab` opens."
    return "\n\n".join([*parts, "---", link]) + "\n"


def frame(address: str, title: str) -> str:
    """Return a replay that a page embeds, with a link to it alone."""
    return (
        f'<iframe class="replay" loading="lazy" src="{address}" title="{title}"></iframe>\n\n'
        f'<p class="caption">{title}. Drag the time bar; press a key from 1 to 9 for another view. '
        f'<a href="{address}">Open it alone.</a></p>'
    )


def _cell(cell: dict[str, Any], at: int, notebook: Path, pictures: Path) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield page(source)
        return
    fence = f"````python\n{source}\n````"
    hidden = cell["metadata"].get("jupyter", {}).get("source_hidden")
    law = source.lstrip().startswith("assert ") or source.count("\nassert ") > 2
    if hidden or law:
        words = "What must hold, as asserts" if law else "Code, folded"
        fence = f'<details markdown="1"><summary>{words}</summary>\n\n{fence}\n\n</details>'
    yield fence
    for number, output in enumerate(cell.get("outputs", ())):
        stem = f"{notebook.stem}-{at:02}-{number}"
        if shown := _output(output, pictures / stem):
            yield shown


def _plain(html: str) -> str:
    """Return a table of Polars without its shape, its types and its texts' quotes."""
    html = re.sub(r"<small>shape: [^<]*</small>", "", html)
    html = re.sub(r"(<thead><tr>(?:<th>.*?</th>)+</tr>)<tr>.*?</tr></thead>", r"\1</thead>", html)
    return re.sub(r"<td>&quot;([^<]*)&quot;</td>", r"<td>\1</td>", html)


def _output(output: dict[str, Any], file: Path) -> str:
    """Return an output as Markdown: the best that it has for a page without a kernel."""
    data = {kind: _joined(value) for kind, value in output.get("data", {}).items()}
    if "image/svg+xml" in data:
        return _picture(data["image/svg+xml"].encode(), file.with_suffix(".svg"))
    if "image/png" in data:
        return _picture(base64.b64decode(data["image/png"]), file.with_suffix(".png"))
    if "text/markdown" in data:
        return f'<div class="output" markdown="1">\n\n{page(data["text/markdown"])}\n\n</div>'
    if "text/html" in data:
        return f'<div class="output">{_one_block(clean(_plain(data["text/html"])))}</div>'
    text = data.get("text/plain") or "".join(output.get("text", ""))
    if output.get("output_type") == "error":
        text = f"{output['ename']}: {output['evalue']}"
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    if not text:
        return ""
    shown = f"````text\n{text}\n````"
    if text.count("\n") > LONGEST:
        return f'<details markdown="1"><summary>Output</summary>\n\n{shown}\n\n</details>'
    return shown


def _picture(content: bytes, file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return f"![What the cell above shows](pictures/{file.name})"


def _joined(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value)


def _one_block(html: str) -> str:
    """Return HTML without empty lines, at which Markdown would end the block."""
    return re.sub(r"\n\s*\n+", "\n", html)
