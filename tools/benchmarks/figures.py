"""The figures of a benchmark, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured number beside what was aimed at. ``at_least``: larger is better. ``target``:
    None where nothing was, and the number only tells.
    """

    what: str
    measured: float
    target: float | None
    unit: str
    at_least: bool
    detail: str = ""

    @property
    def reached(self) -> bool:
        if self.target is None:
            return True
        return self.measured >= self.target if self.at_least else self.measured <= self.target


def show(title: str, figures: list[Figure], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("figure", "measured", "target", "", "detail"):
        table.add_column(column, justify="right" if column in ("measured", "target") else "left")
    for figure in figures:
        sign, aimed = "≥" if figure.at_least else "≤", figure.target
        table.add_row(
            figure.what,
            f"{figure.measured:,.2f} {figure.unit}",
            "" if aimed is None else f"{sign} {aimed:g} {figure.unit}",
            "" if aimed is None else "reached" if figure.reached else "[bold]short[/bold]",
            figure.detail,
        )
    console.print(table)
