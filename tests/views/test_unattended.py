"""A notebook that a program executes shows pictures: no page will run its widgets."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from workbench.views.pages.unattended import WIDGET, for_readers, is_unattended

RUN = """import workbench as wb
run = wb.run(wb.Experiment(ranks=2, iterations=3, batch_size=16))
run"""
# Each cell shows something that is a widget where a page can draw it.
CELLS = (RUN, "_ = await run", "wb.partition(12, ranks=2)")


@pytest.mark.full
def test_an_executed_notebook_shows_the_picture_where_no_network_is(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in CELLS]  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output["data"] for cell in notebook.cells for output in cell.outputs if "data" in output
    ]
    assert len(shown) == 2 and all(WIDGET not in data for data in shown)
    assert "image/svg+xml" in shown[0] and "3 iterations" in shown[0]["image/svg+xml"]
    page, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    picture = base64.b64encode(shown[0]["image/svg+xml"].encode()).decode()
    assert picture in page, "the still picture of the run's end"
    assert f'<script type="{WIDGET}">' not in page, "it would need the network"


def test_where_a_page_may_be_the_widget_stays() -> None:
    assert not is_unattended(), "no kernel at all"
    data = {WIDGET: {"model_id": "1"}, "text/html": "a table"}
    assert for_readers(data) == data
