"""The elements of every still picture: ink, font, ground, lines and words, as SVG text."""

from __future__ import annotations

import math
from html import escape

Point = tuple[float, float]  # x, y

# theme.css, light: the picture keeps its own ground
# Plotly's name of a dash -> SVG's stroke-dasharray.
DASH_ARRAYS = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}
INK = {
    "ground": "#ffffff",
    "panel": "#f4f5f7",
    "ink": "#14181d",
    "ink-2": "#434a53",
    "ink-3": "#646b75",
    "rule": "#dadde2",
    "edge": "#858c96",
    "comm": "#cd6602",
    "wait": "#a6277f",
    "fault": "#bc1e2c",
    "live": "#1a7a43",
    "hold": "#814600",
}
# For a picture that draws with ``currentColor`` on the ground that ``opened`` gives it.
IN_BOTH = (
    f"<style>svg{{color:{INK['ink']}}}@media (prefers-color-scheme:dark){{svg{{color:#eceff2}}"
    "svg>rect:first-of-type{fill:#14171b}}</style>"
)
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


def opened(words: str, width: int, height: int, more: str = "") -> list[str]:
    """Return the beginning of a still picture: its size, its text alternative, its ground.
    ``more``: definitions that its marks use.
    """
    label = escape(words)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{label}" font-family="{FONT}" font-size="12">',
        f"<title>{label}</title>{more}",
        f'<rect width="{width}" height="{height}" fill="{INK["ground"]}"/>',
    ]


def text(
    x: float,
    y: float,
    words: str,
    ink: str = "ink-2",
    *,
    size: int = 12,
    weight: int = 400,
    anchor: str = "start",
    most: int = 60,
) -> str:
    words = words if len(words) <= most else words[: most - 1] + "…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK[ink]}" font-size="{size}" '
        f'font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>'
    )


def line(
    a: tuple[float, float], b: tuple[float, float], ink: str, width: float, dash: str = ""
) -> str:
    """Return a line; ``dash`` is SVG's stroke-dasharray."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" '
        f'stroke="{INK[ink]}" stroke-width="{width:g}"{dashed}/>'
    )


def made_line(a: tuple[float, float], b: tuple[float, float], down: bool) -> str:
    """Return a link that was slowed or cut on purpose: dashed, in the ink of what we made."""
    return line(a, b, "fault" if down else "hold", 4, "2 3" if down else "7 4")


def round_up(value: float) -> float:
    """Return the next round number that is not smaller."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(
        m * scale for m in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * scale >= value * (1 - 1e-9)
    )


def round_ticks(most: float) -> list[float]:
    """Return three to six round numbers, from 0 by equal steps up to ``most`` at the most."""
    if most <= 0:
        return [0.0]
    scale = 10.0 ** math.floor(math.log10(most / 5))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale >= most / 5 * (1 - 1e-9))
    return [step * at for at in range(math.floor(most / step + 1e-9) + 1)]


def in_ms(value: float) -> str:
    """Return the words of a tick of an axis in milliseconds."""
    return f"{value:,g} ms" if value else "0"
