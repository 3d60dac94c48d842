"""Whatever is written for the user is whole or not at all, and never anything but a file."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import workbench as wb
from tests.processes import command
from tests.synthetic import training
from workbench.choosing import costs
from workbench.common import output_files
from workbench.common.errors import WorkbenchError
from workbench.store.event_store import Store
from workbench.views.replay import to_html

Writer = Callable[[Path], object]
STORE = Store.from_frame(training(3), {"title": "a run"})
WRITERS: dict[str, Writer] = {
    "parquet": STORE.save,
    "perfetto": STORE.to_perfetto,
    "html": lambda path: to_html(STORE, path),
    "yaml": lambda path: wb.Experiment(seed=7, task_options={}).to_yaml(path),
    "text": lambda path: output_files.write_text(path, "words", "new " * 5000),
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Writer:
    return WRITERS[request.param]


@contextlib.contextmanager
def no_regular_file(path: Path, kind: str) -> Iterator[None]:
    """Something at ``path`` that is not a regular file."""
    with contextlib.ExitStack() as stack:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        elif kind == "link to a device":
            path.symlink_to("/dev/full")
        elif kind == "link to itself":
            path.symlink_to(path)
        yield


@pytest.mark.parametrize("place", ["/proc/a/run.parquet", "/proc/run.parquet", "file/run.parquet"])
def test_where_nothing_can_be_written_is_refused_before_the_work(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(WorkbenchError, match=r"cannot write the run to .*run\.parquet"):
        output_files.make_ready(tmp_path / place, "the run")
    assert (tmp_path / "file").read_text() == "old"


def test_what_is_made_ready_has_its_folder_and_no_file_yet(tmp_path: Path) -> None:
    output_files.make_ready(tmp_path / "a" / "b" / "run.parquet", "the run")
    assert [*(tmp_path / "a" / "b").iterdir()] == []
    (old := tmp_path / "old").write_text("old")
    output_files.make_ready(old, "the run")
    assert old.read_text() == "old"


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "link to a device", "link to itself"])
def test_what_is_not_a_file_is_refused_and_stays(write: Writer, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with no_regular_file(path, kind):
        before = os.lstat(path)
        with pytest.raises(WorkbenchError, match=r"cannot write .* regular file") as refusal:
            write(path)
        assert ("/dev/full" if kind == "link to a device" else str(path)) in str(refusal.value)
        after = os.lstat(path)
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_device_is_refused_by_name(write: Writer) -> None:
    with pytest.raises(WorkbenchError, match=r"to /dev/full: it is a device, which stays as it is"):
        write(Path("/dev/full"))
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


LIMITED = """
import json, resource, sys
from pathlib import Path
from tests.common.test_output_files import WRITERS
from workbench.common.errors import WorkbenchError
told = {}
resource.setrlimit(resource.RLIMIT_FSIZE, (32, 32))
for name, write in WRITERS.items():
    try:
        write(Path(sys.argv[1]) / name)
    except WorkbenchError as error:
        told[name] = str(error)
print(json.dumps(told))
"""


def test_a_full_disk_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    """In a process of which no file may be longer than 32 bytes: so far it gets, and no further."""
    for name in WRITERS:
        (tmp_path / name).write_text("old")
    ended = command([sys.executable, "-c", LIMITED, str(tmp_path)])
    messages = json.loads(ended.stdout)
    assert messages.keys() == WRITERS.keys(), ended
    for name, words in messages.items():
        assert f"to {tmp_path / name}: " in words and "have room" in words
        assert "File too large" in words or name == "parquet", words  # polars has words of its own
        assert (tmp_path / name).read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(WRITERS)


def test_a_file_of_before_is_replaced_with_its_permissions(write: Writer, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    write(path)
    assert path.read_bytes()[:3] != b"old" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_a_file_stays_a_link(write: Writer, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    file, link = folder / "run", tmp_path / "link"
    link.symlink_to(Path("elsewhere") / "run")
    for _ in range(2):  # the file is not there yet; then it is
        write(link)
        assert link.is_symlink() and file.stat().st_size > 0
    assert list(folder.iterdir()) == [file]


def test_an_error_in_between_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), output_files.atomically(path, "words") as beside:
            beside.write_text("new")
            raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_costs_are_written_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "place", lambda: tmp_path / "costs.json")
    (tmp_path / "costs.json").symlink_to("/dev/full")
    with pytest.raises(WorkbenchError, match=r"/dev/full: it is a device"):
        costs.save(costs.load())
