"""The web app: pages served by Panel, for this machine only unless told otherwise.

    serving.py   workbench serve: options, the server's life
    door.py      which visitors may come in
    start.py     the page /      presets, form, past runs (past.py)
    compare.py   the page /compare, and the cards that start a comparison
    run.py       the pages /run and /watch: the stage, charts (charts.py)
    runs.py      the runs that the server holds, beyond any page; limits.py what they may take
    comparisons.py  the comparisons that it holds
    page.py      the stage and the parts of pages as components; parts/ their JavaScript

Pages are thin: what a form holds, how runs compare and what a stage is told is decided in
workbench.interface.form, workbench.runs.history and workbench.views.
"""

from __future__ import annotations

from typing import Any


def stage(run: Any) -> Any:
    """Return the stage of ``run`` as a Panel component (``Run.__panel__``)."""
    from workbench.interface.app.page import Stage

    shown = Stage()
    shown.watch(run)
    return shown
