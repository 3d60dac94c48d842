"""The charts of reinforcement learning: returns by time and frames, speed, ages, bytes by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from workbench.analysis.actors import EPISODES, mean
from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import MOST_POINTS, Trace
from workbench.common.units import print_size

EMPTY = "appears with the first episode"
_DOTS: dict[str, Any] = {"mode": "markers", "marker": {"size": 3}}
_BAR: dict[str, Any] = {"type": "bar"}
_MARK: dict[str, Any] = {
    "mode": "markers",
    "marker": {"size": 10, "symbol": "diamond-open"},
    "cliponaxis": False,
}
_RETURN = (("ink-3", _DOTS), ("ink", LINE))
CHARTS: Mapping[str, Chart] = {
    "returns": Chart(
        "Return, by time", "seconds", "return of an episode", _RETURN, "%{x:.1f} s: %{y:.3g}",
        least=None,
    ),
    "returns_by_frames": Chart(
        "Return, by frames", "frames of all actors", "return of an episode", _RETURN,
        "frame %{x:,.0f}: %{y:.3g}", least=None,
    ),
    "frames": Chart(
        "Frames", "seconds", "frames per second, all actors", (("ink", LINE),),
        "%{x:.1f} s: %{y:,.0f} per second", ",.0f",
    ),
    "ages": Chart(
        "Age of policies", "seconds", "updates", (("ink", LINE), ("comm", LINE)),
        "%{x:.1f} s: %{y:,.1f} updates",
    ),
    "kinds": Chart(
        "Bytes by kind of message", "", "bytes", (("comm", _BAR), ("ink", _MARK)),
        "%{x}: %{y:.4s}B", "~s", across={"type": "category"},
    ),
}  # fmt: skip


def cell(name: str, columns: pl.DataFrame, theme: str = "light") -> Cell:
    """Return a chart of reinforcement learning, from the columns of its curve (actors.py)."""
    chart, ink = CHARTS[name], tokens(theme)
    marks = [
        f'<span style="color:{ink[token]}">{_sign(look)}</span>' for token, look in chart.lines
    ]
    lines, words = _LINES[name](columns), EMPTY
    if columns.height:
        words = _WORDS[name](columns).format(*marks)
    return Cell(chart, titled(chart.title, words), chart.y, lines)


def _sign(look: Mapping[str, Any]) -> str:
    return "◇" if look is _MARK else "·" if look is _DOTS else "■"


def _returns(x: str) -> Any:
    def lines(columns: pl.DataFrame) -> list[Trace]:
        each = -(-columns.height // MOST_POINTS) or 1
        thin = columns.gather_every(each, max(columns.height - 1, 0) % each)
        at = thin[x].to_numpy()
        return [
            Trace("an episode", at, thin["value"].to_numpy()),
            Trace(f"mean of {EPISODES}", at, thin["mean"].to_numpy()),
        ]

    return lines


def _returns_caption(columns: pl.DataFrame) -> str:
    last = columns.row(-1, named=True)
    return (
        f"{{1}} {last['mean']:.3g}, mean of {EPISODES} {{0}} episodes, after {last['seconds']:.1f} "
        f"s and {last['frames']:,} frames"
    )


def _frames(columns: pl.DataFrame) -> list[Trace]:
    return [Trace("frames", columns["seconds"].to_numpy(), columns["frames_per_s"].to_numpy())]


def _frames_caption(columns: pl.DataFrame) -> str:
    recent = columns["frames_per_s"].tail(-(-columns.height // 5)).to_numpy().mean()
    return f"{recent:,.0f} frames per second"


def _ages(columns: pl.DataFrame) -> list[Trace]:
    lines = []
    for words, part in {"sample age": "age", "policy lag": "lag"}.items():
        series = columns.filter(pl.col(part).is_not_nan())
        lines.append(Trace(words, series["seconds"].to_numpy(), series[part].to_numpy()))
    return lines


def _ages_caption(columns: pl.DataFrame) -> str:
    recent = columns.tail(-(-columns.height // 5))
    age, lag = (mean(recent[part]) for part in ("age", "lag"))
    words = "{0} a sample" + (" is not drawn yet" if age is None else f" is {age:,.1f} updates old")
    return words + ("" if lag is None else f", {{1}} a pull brings {lag:,.1f} updates")


def _kinds(columns: pl.DataFrame) -> list[Trace]:
    names = columns["kind"].to_numpy()
    sources = {"sent": "nbytes", "by formula": "expected"}
    return [Trace(words, names, columns[part].to_numpy()) for words, part in sources.items()]


def _kinds_caption(columns: pl.DataFrame) -> str:
    whole = columns["nbytes"].to_numpy()
    at = int(whole.argmax())
    share = whole[at] / max(whole.sum(), 1)
    size = print_size(int(float(f"{whole.sum():.4g}")))
    return f"{{0}} {size} sent, {share:.0%} of it {columns['kind'][at]!s} · {{1}} by formula"


_LINES: Mapping[str, Any] = {
    "returns": _returns("seconds"),
    "returns_by_frames": _returns("frames"),
    "frames": _frames,
    "ages": _ages,
    "kinds": _kinds,
}
_WORDS: Mapping[str, Any] = {
    "returns": _returns_caption,
    "returns_by_frames": _returns_caption,
    "frames": _frames_caption,
    "ages": _ages_caption,
    "kinds": _kinds_caption,
}
