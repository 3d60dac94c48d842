"""Takes what it is told on its standard input, a request a line, and says how each went, and at
what cost.

A process of its own: reading damaged bytes may end the process, and that is to be seen.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import workbench as wb
from workbench.checkpoints.saved import Saved
from workbench.experiment.checks import prepare
from workbench.interface import form
from workbench.interface.app.limits import Limits
from workbench.interface.app.start import plain
from workbench.runs.checkpoints import checkpoint_of, sizes_of
from workbench.runs.loaded import Loaded
from workbench.tasks._blueprint import blueprints_only
from workbench.views.pages.facts import facts

ADDRESSES = 4 << 30  # bytes beyond what it has: so that this machine survives


def use_run(path: str) -> str:
    """Use a saved run as its user does. Returns its number of rows and their sum, as words."""
    run = wb.load(Path(path))
    events = run.events
    own = events.select(pl.col("start_ns").sum(), pl.col("seq").sum(), pl.len()).row(0)
    few = run.store.scan().filter(pl.col("kind") == "send").select("nbytes").collect()
    run.store.since(len(run.store) - 3)
    facts(run.store.metadata)
    return f"{own} {few.height} {run.dropped}"


def use_recording(path: str) -> str:
    """Load another user's recording, draw it, save it, and load what was saved."""
    with tempfile.TemporaryDirectory() as folder:
        run = wb.load(Path(path))
        _draw(run, Path(folder))
        saved = Path(folder) / "run.parquet"
        run.store.save(saved)
        return f"{len(wb.load(saved).events)} rows"


def _draw(run: Loaded, folder: Path) -> None:
    run._repr_mimebundle_()
    run.to_html(folder / "run.html")


def use_checkpoint(fields: dict[str, Any]) -> str:
    """Look for the checkpoint to go on from, as the driver does, and read it as a rank does."""
    manifest = checkpoint_of(wb.Experiment(**fields))
    assert manifest is not None
    sizes = sizes_of(manifest).to_json()
    saved = Saved(manifest, 0, manifest.ranks)  # as a rank does
    return f"{sizes} {saved.tensor('model.w').shape} {saved.all('step')}"


def use_form(values: dict[str, Any]) -> str:
    """Take a form as the start page does when its run is started, up to where ranks would start."""
    return _start(form.experiment(plain(values), Limits().check_fields))


def use_link(link: str) -> str:
    """The same of a link."""
    return _start(form.from_link(link, Limits().check_fields))


def _start(exp: wb.Experiment) -> str:
    form.values(exp), form.as_program(exp)
    Limits().check(exp)
    with blueprints_only():
        return f"{len(prepare(exp))} facts"


USES: dict[str, Callable[[Any], str]] = {
    "run": use_run,
    "recording": use_recording,
    "checkpoint": use_checkpoint,
    "form": use_form,
    "link": use_link,
}


def answer_to(use: Callable[[Any], str], what: Any) -> dict[str, Any]:
    """Return how it went: read, refused or raised, in words; the processor's time; and by how much
    the process had grown at the most.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    held, began = _kilobytes("VmRSS"), time.process_time()
    try:
        answer = {"read": use(what)}
    except wb.WorkbenchError as error:
        answer = {"refused": str(error)}
    except BaseException as error:  # also a panic of polars, which is not an Exception
        answer = {"raised": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - began
    return {"answer": answer, "seconds": seconds, "megabytes": (_kilobytes("VmHWM") - held) / 1e3}


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def main() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    for line in sys.stdin:
        use, what = json.loads(line)
        print(json.dumps(answer_to(USES[use], what)), flush=True)


if __name__ == "__main__":
    main()
