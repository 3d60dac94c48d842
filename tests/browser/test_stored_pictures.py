"""Stored pictures of the chapters as a browser draws them: no label is cut off at an edge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.github_view import FOLDER

CHAPTERS = sorted(FOLDER.glob("*.ipynb"))
SLACK = 2.0  # px: a font's own margin, and what rounding moves
CUT = """(slack) => [...document.querySelectorAll("svg text")].flatMap((text) => {
  const box = text.getBoundingClientRect();
  if (!text.textContent.trim() || !box.width) return [];
  const limits = [];
  for (let node = text; node && node.tagName !== "BODY"; node = node.parentElement) {
    if (node.tagName === "svg") limits.push(node.getBoundingClientRect());
    const clip = /#([^")]+)/.exec(node.getAttribute("clip-path") || node.style.clipPath || "");
    const rect = clip && document.getElementById(clip[1])?.querySelector("rect");
    if (!rect) continue;
    const matrix = node.getScreenCTM(), [x, y, w, h] =
      ["x", "y", "width", "height"].map((name) => Number(rect.getAttribute(name) || 0));
    const a = new DOMPoint(x, y).matrixTransform(matrix);
    const b = new DOMPoint(x + w, y + h).matrixTransform(matrix);
    limits.push({ left: a.x, top: a.y, right: b.x, bottom: b.y });
  }
  const cut = limits.some((limit) => box.left < limit.left - slack || box.top < limit.top - slack
    || box.right > limit.right + slack || box.bottom > limit.bottom + slack);
  return cut ? [text.textContent] : [];
})"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page without network."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


def pictures(path: Path) -> list[tuple[int, str]]:
    """Return the SVGs that a chapter stores, with the numbers of their cells."""
    result = []
    for at, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        for output in cell.get("outputs", ()):
            if svg := output.get("data", {}).get("image/svg+xml"):
                result.append((at, "".join(svg)))
    return result


def cut_labels(page: Page, svg: str) -> list[str]:
    page.set_content(f"<body style='margin:20px'>{svg}</body>")
    return page.evaluate(CUT, SLACK)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_no_label_of_a_stored_picture_is_cut_off(page: Page, path: Path) -> None:
    broken = {at: labels for at, svg in pictures(path) if (labels := cut_labels(page, svg))}
    assert not broken, f"{path.name}: cell -> labels that are cut off: {broken}"


def test_a_label_beyond_its_picture_or_its_clip_is_noticed(page: Page) -> None:
    start = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="60">'
    inside = '<text x="20" y="30">inside</text>'
    assert cut_labels(page, f"{start}{inside}</svg>") == []
    assert cut_labels(page, f'{start}{inside}<text x="190" y="30">beyond</text></svg>') == [
        "beyond"
    ]
    clip = '<clipPath id="c"><rect width="200" height="20"/></clipPath>'
    clipped = f'{start}{clip}<g clip-path="url(#c)">{inside}</g></svg>'
    assert cut_labels(page, clipped) == ["inside"]
