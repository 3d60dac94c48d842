"""JupyterLab: from a cell that is run to the first frame of its picture, and of the next picture.

The page takes the stage's module once, so the second picture has less to wait for.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from tests import notebook_files
from tools.benchmarks.figures import Figure
from tools.benchmarks.pages import chromium, served

TIMES = 3
CELLS = (
    "import workbench as wb\n"
    "run = wb.run(wb.Experiment(ranks=2, iterations=50))\n"
    "_ = run.wait(120, progress=False)",
    "run.view('collectives')",
    "run.view('timeline')",
)
RUN = """() => window.jupyterapp.commands.execute("notebook:run-cell")"""  # without a picture
# Runs a cell; gives the milliseconds until one more stage than before has drawn rows.
FIRST = """async (cell) => {
  const drawn = () => [...document.querySelectorAll(".wb-stage")].filter(
    (root) => root.stage?.known().table.rows && root.stage.frame().cost > 0).length;
  const before = drawn(), began = performance.now();
  window.jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
  void window.jupyterapp.commands.execute("notebook:run-cell");
  return new Promise((done) => {
    const look = () =>
      drawn() > before ? done(performance.now() - began) : requestAnimationFrame(look);
    look();
  });
}"""


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        notebook_files.write(Path(folder) / "book.ipynb", CELLS)
        lab = (
            "jupyterlab",
            *("--no-browser", "--expose-app-in-browser", "--allow-root", "--port={port}"),
            "--log-level=50",
            *("--IdentityProvider.token=bench", f"--ServerApp.root_dir={folder}"),
            *(f"--LabApp.{one}_dir={folder}/{one}" for one in ("workspaces", "user_settings")),
        )
        with served(*lab) as address, chromium() as browser:
            took = [_of_page(browser, address) for _ in range(TIMES)]
    first, second = (statistics.median(times) for times in zip(*took, strict=True))
    detail = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
    return [
        Figure("a cell's first picture", first, None, "ms", False, detail),
        Figure("the next picture of the page", second, None, "ms", False, detail),
    ]


def _of_page(browser: Browser, address: str) -> list[float]:
    page = browser.new_page(viewport={"width": 1440, "height": 2600})
    page.goto(f"{address}lab/tree/book.ipynb?token=bench&reset", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook")
    page.evaluate(notebook_files.READY)
    page.evaluate(RUN)
    took = [float(page.evaluate(FIRST, cell)) for cell in (1, 2)]
    shut = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
    page.evaluate(shut)
    page.close()
    return took
