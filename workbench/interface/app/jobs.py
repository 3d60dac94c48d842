"""Jobs of others that visitors may watch: ``workbench serve --watch`` names their trace folders, or
the addresses of their pages.

A visitor names a job by a name from the list, never by a path, and a folder that is a link leads to
none. A job is followed while a page shows it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import panel as pn

from workbench.common.errors import WorkbenchError
from workbench.common.units import counted
from workbench.interface.app.page import BarPart, Ground, Site, Stage, address_value, frame
from workbench.runs.attach import Watching
from workbench.runs.job_address import folder_at

AT_A_TIME = 8  # jobs that are followed
LISTED = 50  # the newest
NONE = (
    "There is no such job here",
    "Either its folder is not one that this server's operator has named (--watch), or it has no "
    "records yet.",
    "The jobs that there are stand on the start page.",
)
TOO_MANY = (
    "Too many jobs are being watched",
    f"This server follows {AT_A_TIME} jobs at a time. Close a page of another one, and load this "
    "page again.",
)


@dataclass
class _Followed:
    watching: Watching
    pages: int = 0


class Jobs:
    """The jobs of these folders, each a trace folder, or one with trace folders in it."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = [folder_at(one) for one in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise WorkbenchError(
                    f"--watch: there is no folder {folder}; name one that attached jobs record into"
                )
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()

    @property
    def allowed(self) -> bool:
        """Return whether the operator has named any folder."""
        return bool(self._folders)

    def by_name(self) -> dict[str, Path]:
        """Return the folder of each job by its name, the newest job first."""
        jobs: dict[str, Path] = {}
        for folder in self._folders:
            if _is_trace(folder):
                jobs[folder.name] = folder
                continue
            inner = [one for one in _inside(folder) if not one.is_symlink() and _is_trace(one)]
            jobs |= {f"{folder.name}/{one.name}": one for one in inner}
        newest = sorted(jobs, key=lambda name: _age(jobs[name]), reverse=True)
        return {name: jobs[name] for name in newest[:LISTED]}

    def join(self, name: str) -> tuple[Watching, Callable[[], None]] | None:
        """Follow the job of that name; return it, and what ends that for this page. None: too many
        others are followed. Raises KeyError for a name that is not listed.
        """
        folder = self.by_name()[name]
        with self._lock:
            if name not in self._followed:
                if len(self._followed) >= AT_A_TIME:
                    return None
                self._followed[name] = _Followed(Watching(folder))
            one = self._followed[name]
            one.pages += 1
        return one.watching, lambda: self._leave(name, one)

    def close(self) -> None:
        """Follow nothing any more."""
        with self._lock:
            followed, self._followed = [*self._followed.values()], {}
        for one in followed:
            one.watching.close()

    def _leave(self, name: str, one: _Followed) -> None:
        with self._lock:
            one.pages -= 1
            if one.pages or self._followed.pop(name, None) is None:
                return
        one.watching.close()


def _inside(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except OSError:  # as below
        return []


def _is_trace(folder: Path) -> bool:
    try:
        return any(one.is_dir() for one in folder.glob("rank-*"))
    except OSError:  # it has gone, or is not ours to read
        return False


def _age(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def listed(site: Site) -> list[dict[str, str]]:
    """Return the jobs as the start page lists them."""
    entries = []
    for name, folder in site.jobs.by_name().items():
        ranks = {one.name.split("-")[1] for one in folder.glob("rank-*")}
        entries.append({"name": name, "words": counted(len(ranks), "rank")})
    return entries


def job_page(site: Site) -> pn.Template:
    """Build the page at ``/job?name=``: the job as it is, and no control over it."""
    name = address_value("name")
    try:
        joined = site.jobs.join(name)
    except KeyError:
        return frame(NONE[0], {"ground": Ground()}, NONE, site.logout)
    if joined is None:
        return frame(TOO_MANY[0], {"ground": Ground()}, TOO_MANY, site.logout)
    watching, leave = joined
    bar, stage = BarPart(), Stage()
    bar.tell(
        title=name,
        words="a watched job: it was started elsewhere, and nothing here can hold, slow or end it",
        notice="",
        serious=False,
        watch="",
        again="",
        ways=[],
        code="",
    )
    stage.watch(watching, readonly=True)

    def gone(_: object) -> None:
        stage.leave()
        leave()

    pn.state.on_session_destroyed(gone)
    return frame(name, {"bar": bar, "stage": stage, "ground": Ground()}, (), site.logout)
