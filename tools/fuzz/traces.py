"""Trace folders: damaged, or with things in them that no rank has put there."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path
from typing import Any

from tools.fuzz.made_up import damaged, put_no_file
from workbench.common.errors import WorkbenchError
from workbench.recording.events import SEND
from workbench.recording.recorder import Recorder
from workbench.store.event_store import Store
from workbench.store.trace_follower import Follower

ROWS = 300


def trace(folder: Path) -> Path:
    """Return what two ranks have written that ended well."""
    for rank in range(2):
        recorder = Recorder.into_folder(folder, rank)
        for name in ("comm", "compute"):
            lane = recorder.lane(name)
            for i in range(ROWS):
                if i % 30 == 0:
                    lane.context(recorder.name("all_reduce"), op=i // 30)
                lane.write(SEND, i, i + 1, 1 - rank, name=recorder.name(f"bucket {i % 3}"))
        recorder.joined(2)
        recorder.end("")
    return folder


Deed = tuple[str, str, Any]  # what is done, to which path of the folder, with what


def deed(whole: Path, chance: random.Random) -> Deed:
    """Return what may be done to one file of a folder, or put beside it."""
    files = sorted(path for path in whole.rglob("*") if path.is_file())
    path = chance.choice([*files, *(one for one in files if one.name == "trace")])
    name = str(path.relative_to(whole))
    match chance.randrange(12):
        case 0 | 1 | 2 | 3 as way:
            return ("missing", "fifo", "folder", "loop")[way], name, None
        case 4:
            return "cut", name, chance.choice((0, 1, 63, 4096, 1 << 40))
        case 5:
            odd = ("rank-99999999999999999999-1", "rank-0-1", "rank-x", "rank-\u0661-2", "rank-1-0")
            return "beside", chance.choice(odd), None
        case 6:
            return "again", name, None
        case _:
            data = path.read_bytes()
            # Most of it is empty: what counts is at the beginning.
            most = min(len(data), chance.choice((128, 4096 + 256, ROWS * 64, len(data))))
            return "begin", name, (damaged(data[:most], chance), most)


def spoil(folder: Path, deed: Deed) -> None:
    """Do it to a copy of the folder."""
    what, name, value = deed
    path = folder / name
    if what in ("missing", "fifo", "folder", "loop"):
        path.unlink()
    match what:
        case "fifo" | "folder" | "loop":
            put_no_file(path, what)
        case "cut":
            os.truncate(path, value)
        case "beside":
            path.mkdir(exist_ok=True)
        case "again":
            shutil.copytree(path.parent, folder / "rank-7-123")
        case "begin":
            begins, most = value
            path.write_bytes(begins + path.read_bytes()[most:])


def read_and_follow(folder: Path) -> None:
    """Raises what neither a reader nor a watcher of the folder may raise."""
    for partial in (False, True):
        with contextlib.suppress(WorkbenchError):
            store = Store.load(folder, partial=partial)
            assert store.events.height == len(store) <= 8 * ROWS
    store = Store()
    follower = Follower(store, folder)
    try:
        for _ in range(2):
            follower.poll()
            follower._looked = -1.0
        assert all(isinstance(words, str) and words for words in follower.problems.values())
        assert store.events.height == len(store)
        for rank in follower.ranks.values():
            _ = rank.last_words, rank.of, rank.metered()
    finally:
        follower.stop()
