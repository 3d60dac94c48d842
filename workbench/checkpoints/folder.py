"""A folder of checkpoints: whole ones only, whenever it is looked at.

    FOLDER/iteration-00000040/checkpoint.json      what it is, and the SHA-256 of its files
                              rank-0000.safetensors, rank-0000.json, ...
    FOLDER/.iteration-00000060.1f3a.part           being written by the run 1f3a

A checkpoint is written to a new folder, brought to the disk and renamed: a kill, a full disk or a
power cut at any byte leaves what was there before.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.common.errors import CheckpointError, short
from workbench.experiment.checkpoint import Checkpoint
from workbench.store.regular_file import json_of, opened

FORMAT = 1
MANIFEST = "checkpoint.json"
_NAME = re.compile(r"iteration-(\d{8,})")
_LOOK = 0.01  # seconds between two looks for the files of other ranks


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises OSError, also for what is not a file."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_of(iteration: int) -> str:
    """Return the name of the folder of the checkpoint after so many iterations."""
    return f"iteration-{iteration:08d}"


def tensors_of(rank: int) -> str:
    """Return the name of the file with a rank's tensors."""
    return f"rank-{rank:04d}.safetensors"


def values_of(rank: int) -> str:
    """Return the name of the file with what else a rank keeps."""
    return f"rank-{rank:04d}.json"


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint, without its tensors."""

    path: Path  # its folder
    iteration: int  # iterations that were done: training goes on with this one
    ranks: int
    present: list[int]  # ranks that have files; one that was lost, or trains nothing, has none
    spec: dict[str, Any]  # the experiment's fields
    per_rank: list[str]  # what every rank keeps for itself: such a run goes on with as many ranks
    files: dict[str, str]  # name -> SHA-256

    @property
    def nbytes(self) -> int:
        """The bytes of all its files."""
        return sum((self.path / name).stat().st_size for name in self.files)


class AnotherRankFailed(CheckpointError):
    """A rank could not write its files; its own error says why."""


def part_of(folder: Path, iteration: int, run: str) -> Path:
    """Return the folder in which a run writes a checkpoint, until it is whole."""
    return folder / f".{name_of(iteration)}.{run}.part"


def discard(part: Path) -> None:
    """Remove what there is of a checkpoint that will not be whole: its room on the disk is wanted,
    for the next one too.
    """
    shutil.rmtree(part, ignore_errors=True)


def give_up(part: Path, rank: int) -> None:
    """Remove a rank's files, and leave word for the first rank, which waits for them."""
    with contextlib.suppress(OSError):
        (part / tensors_of(rank)).unlink(missing_ok=True)
        (part / _failed(rank)).touch()
        return
    discard(part)  # not even an empty file: the first rank finds the folder gone


def _failed(rank: int) -> str:
    return f"rank-{rank:04d}.failed"


def write_json(path: Path, values: Any) -> str:
    """Write values as JSON, whole or not at all, onto the disk. Returns the SHA-256."""
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    sha = sha256(beside)
    os.replace(beside, path)
    return sha


def commit(
    part: Path,
    described: Mapping[str, Any],
    keep: int,
    deadline: float,
    abandoned: Callable[[int], bool] = lambda _: False,
) -> Path:
    """Make a checkpoint of ``part`` once all ranks' files are in it, and remove the oldest ones.
    ``abandoned``: whether those of this rank will never come.

    Returns its folder. Raises AnotherRankFailed, OSError, CheckpointError where a rank's files do
    not come in time.
    """
    target = part.parent / name_of(described["iteration"])
    files, per_rank = dict[str, str](), set[str]()
    for rank in described["present"]:
        path = part / values_of(rank)
        while not path.exists():
            failed = (part / _failed(rank)).exists() or not part.exists()
            if failed or abandoned(rank) or time.monotonic() > deadline:
                raise (AnotherRankFailed if failed else CheckpointError)(
                    f"the checkpoint after iteration {described['iteration']} is not whole: "
                    f"rank {rank} did not write its files. The one before it is untouched."
                )
            time.sleep(_LOOK)
        manifest = json_of(path)
        files |= {path.name: sha256(path), tensors_of(rank): manifest["sha256"]}
        per_rank |= set(manifest["per_rank"])
    write_json(
        part / MANIFEST,
        {"format": FORMAT, **described, "per_rank": sorted(per_rank), "files": files},
    )
    _settle(part)
    gone = _out_of_the_way(target)
    os.rename(part, target)
    _settle(part.parent)
    for old in [*sorted(iterations(part.parent))[:-keep]]:
        _remove(part.parent / name_of(old))
    if gone is not None:
        shutil.rmtree(gone, ignore_errors=True)
    return target


def iterations(folder: Path) -> list[int]:
    """Return the iterations of a folder's checkpoints, whole or damaged, newest first."""
    with contextlib.suppress(FileNotFoundError):
        names = (_NAME.fullmatch(one.name) for one in folder.iterdir() if one.is_dir())
        return sorted((int(one[1]) for one in names if one), reverse=True)
    return []


def read_manifest(path: Path) -> Manifest:
    """Read a checkpoint's manifest. Raises CheckpointError for one that is none, or damaged."""
    try:
        fields = json_of(path / MANIFEST)
        if fields["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {short(fields['format'])}: this version reads format {FORMAT}"
            )
        files = {str(name): str(sha) for name, sha in fields["files"].items()}
        manifest = Manifest(
            path,
            int(fields["iteration"]),
            int(fields["ranks"]),
            [int(rank) for rank in fields["present"]],
            dict(fields["spec"]),
            [str(name) for name in fields["per_rank"]],
            files,
        )
        if manifest.iteration < 0 or manifest.ranks < 1 or min(manifest.present) < 0:
            raise ValueError("a number in it is negative")
        return manifest
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        why = str(error)[:200] or type(error).__name__
        raise CheckpointError(
            f"{path} is not a whole checkpoint: {MANIFEST} cannot be read ({why})"
        ) from None


def verify(manifest: Manifest) -> None:
    """Raise CheckpointError for a file that is missing, or whose bytes are not those written."""
    expected = {one for r in manifest.present for one in (tensors_of(r), values_of(r))}
    if missing := sorted(expected - set(manifest.files)):
        raise CheckpointError(
            f"{manifest.path} is damaged: its manifest does not name {missing[0]}"
        )
    for name in sorted(expected):
        try:
            whole = sha256(manifest.path / name) == manifest.files[name]
        except OSError as error:
            raise CheckpointError(
                f"{manifest.path} is damaged: {name} cannot be read ({error.strerror})"
            ) from None
        if not whole:
            raise CheckpointError(
                f"{manifest.path} is damaged: the bytes of {name} are not those that were written"
            )


def newest_path(plan: Checkpoint | None) -> str:
    """Return the folder of the newest whole checkpoint of a plan; "": there is none."""
    if plan is None:
        return ""
    try:
        return str(newest(Path(plan.folder).absolute())[0].path)
    except CheckpointError:
        return ""


def newest(place: Path) -> tuple[Manifest, list[str]]:
    """Return the newest whole checkpoint at ``place``, a folder of checkpoints or one of them, and
    what is wrong with newer ones.

    Raises CheckpointError if there is none.
    """
    try:
        is_one = bool(_NAME.fullmatch(place.name)) and (place / MANIFEST).exists()
        known = [] if is_one else iterations(place)
    except OSError as error:
        raise CheckpointError(f"{place} cannot be read: {error.strerror}") from None
    if is_one:
        manifest = read_manifest(place)
        verify(manifest)
        return manifest, []
    damaged: list[str] = []
    for iteration in known:
        try:
            manifest = read_manifest(place / name_of(iteration))
            verify(manifest)
            return manifest, damaged
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        raise CheckpointError("no checkpoint is whole:\n  " + "\n  ".join(damaged))
    raise CheckpointError(
        f"{place} has no checkpoint: it has no folder such as {name_of(40)}. Name the folder of "
        "Checkpoint(folder=...), or one of its checkpoints."
    )


class Lock:
    """The right to write checkpoints into a folder: one run at a time has it."""

    def __init__(self, folder: Path) -> None:
        """Take it, and remove what runs have left that ended while they were writing.

        Raises CheckpointError where another run has it, or the folder cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise CheckpointError(
                f"cannot write checkpoints to {folder}: {error.strerror}. It must be a folder that "
                "may be written, or a path where one can be made."
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise CheckpointError(
                f"another run writes its checkpoints to {folder}: name another folder"
            ) from None
        self._folder = folder
        self._sweep()

    def close(self) -> None:
        """Give it back, once no rank writes any more; nothing unfinished is left."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._sweep()
            os.close(fd)

    def _sweep(self) -> None:
        for left in self._folder.glob(".iteration-*"):
            if left.suffix in (".part", ".gone"):
                shutil.rmtree(left, ignore_errors=True)


def _out_of_the_way(path: Path) -> Path | None:
    """Rename a checkpoint so that it is not taken for one; return its new path."""
    gone = path.with_name(f".{path.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    try:
        os.rename(path, gone)
    except FileNotFoundError:
        return None
    return gone


def _remove(path: Path) -> None:
    if (gone := _out_of_the_way(path)) is not None:
        shutil.rmtree(gone, ignore_errors=True)


def _settle(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
