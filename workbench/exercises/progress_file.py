"""The file with a reader's progress: JSON in the folder ``runs``, or where WORKBENCH_PROGRESS says.

    {"format": 1, "exercises": {"01.1": {"solved": true, "tries": 2, "solved_at": "2026-..."}},
     "guesses": {"Which waits?": {"options": [...], "taken": "all", "answer": "all"}}}

Notebooks that run at the same time share it: it is changed under a lock.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.common import environment
from workbench.common.errors import WorkbenchError
from workbench.common.output_files import write_text

FORMAT = 1
NAME = "exercises.json"
WHAT = "the progress in the exercises"


def path() -> Path:
    """Return where the file is: named by WORKBENCH_PROGRESS, else in the folder ``runs`` of the
    working directory or of the nearest folder above it that has one.
    """
    if named := environment.text("WORKBENCH_PROGRESS"):
        return Path(named).expanduser()
    here = Path.cwd()
    folder = next((one for one in (here, *here.parents) if (one / "runs").is_dir()), here)
    return folder / "runs" / NAME


def read() -> dict[str, Any]:
    """Return what is kept so far. Raises WorkbenchError if the file is damaged."""
    empty: dict[str, Any] = {"format": FORMAT, "exercises": {}, "guesses": {}}
    place = path()
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return empty
    except (OSError, ValueError) as error:
        raise WorkbenchError(_damaged(place, str(error))) from error
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        raise WorkbenchError(_damaged(place, f"it is not of format {FORMAT}"))
    if not all(isinstance(kept.get(part, {}), dict) for part in ("exercises", "guesses")):
        raise WorkbenchError(_damaged(place, "exercises and guesses must be objects"))
    return empty | kept


def change(edit: Callable[[dict[str, Any]], None]) -> None:
    """Let ``edit`` change what is kept. Raises WorkbenchError if the file cannot be read or
    written.
    """
    place = path()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = (place.parent / f".{place.name}.lock").open("w", encoding="utf-8")
    except OSError as error:
        raise WorkbenchError(
            f"cannot keep {WHAT} in {place}: {error.strerror}. "
            "Name a file that can be written in WORKBENCH_PROGRESS."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = read()
        edit(kept)
        write_text(place, WHAT, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def keep_answer(name: str, solved: bool) -> None:
    """Count a try; what was solved once stays solved."""

    def edit(kept: dict[str, Any]) -> None:
        one = kept["exercises"].setdefault(name, {"solved": False, "tries": 0})
        one["tries"] += 1
        if solved and not one["solved"]:
            one.update(solved=True, solved_at=time.strftime("%Y-%m-%dT%H:%M:%S"))

    change(edit)


def _damaged(place: Path, reason: str) -> str:
    return (
        f"cannot read {WHAT} from {place}: {reason}. Mend the file, or move it away to begin again."
    )
