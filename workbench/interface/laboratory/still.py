"""The laboratory where no kernel runs: its gallery as one still picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from textwrap import wrap

from workbench.front_end.svg import INK, opened, text
from workbench.interface.gallery import GALLERY, picture
from workbench.presets.catalogue import Preset

COLUMNS, CARD, GAP = 4, (240, 135), 16  # a frame is 400 x 225
WORDS = "The laboratory: eight of its presets. With a kernel, a click runs one."
LINE, MOST_LINES = 38, 4  # letters of a line; lines of a question


def still(presets: Mapping[str, Preset]) -> str:
    """Return the cards of the gallery as SVG: a frame, the name and the question of each."""
    width, height = CARD
    tall = height + 40 + 15 * MOST_LINES
    rows = -(-len(GALLERY) // COLUMNS)
    whole = (COLUMNS * (width + GAP) + GAP, 40 + rows * (tall + GAP))
    parts = [*opened(WORDS, *whole), text(GAP, 24, WORDS, "ink", size=13, most=100)]
    for at, name in enumerate(GALLERY):
        x, y = GAP + at % COLUMNS * (width + GAP), 40 + at // COLUMNS * (tall + GAP)
        frame = base64.b64encode(picture(name, still=True).read_bytes()).decode()
        parts.append(
            f'<image x="{x}" y="{y}" width="{width}" height="{height}" '
            f'href="data:image/webp;base64,{frame}"/>'
            f'<rect x="{x}" y="{y}" width="{width}" height="{tall}" rx="6" fill="none" '
            f'stroke="{INK["rule"]}"/>'
        )
        parts.append(text(x + 10, y + height + 20, name, "ink", size=13, weight=600))
        question = wrap(presets[name].words, LINE, max_lines=MOST_LINES, placeholder=" …")
        for number, words in enumerate(question):
            parts.append(text(x + 10, y + height + 38 + 15 * number, words))
    return "\n".join([*parts, "</svg>"])
