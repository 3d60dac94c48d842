"""Images and labels in IDX files, as MNIST and Fashion-MNIST come, gzipped or not.

Format  two zero bytes, the type of the numbers (8: unsigned bytes), how many dimensions, each
        dimension as a big-endian 32-bit number, then the numbers.
        LeCun, Cortes & Burges, "The MNIST database of handwritten digits", 1998;
        Xiao, Rasul & Vollgraf, "Fashion-MNIST", arXiv 1708.07747, 2017: the same files by name.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.common.errors import MissingFiles, SpecError

UNSIGNED_BYTE = 8
PARTS = {"train": "train", "validation": "t10k"}  # a split, and how its files' names begin
# What usually lies in a file, by the end of its name, and the bytes of it gzipped.
USUAL = {
    "train-images-idx3-ubyte": ("60,000 images to train on", "26.4 MB", "9.9 MB"),
    "train-labels-idx1-ubyte": ("their labels", "29.5 kB", "28.9 kB"),
    "t10k-images-idx3-ubyte": ("10,000 images to validate with", "4.4 MB", "1.6 MB"),
    "t10k-labels-idx1-ubyte": ("their labels", "5.1 kB", "4.5 kB"),
}


def read(folder: str | Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (count, rows, columns) and labels (count) of a split, both uint8.

    Raises SpecError, which names for each file the fault, and the files to get.
    """
    return _of(folder, [split])[split]


def check(folder: str | Path, classes: int) -> None:
    """Raise the SpecError that ``read`` would, of all splits, and for labels beyond ``classes``."""
    result = _of(folder, list(PARTS))
    wrong = [
        f"{PARTS[split]}-labels-idx1-ubyte has the label {labels.max()}: they are 0 to "
        f"{classes - 1}"
        for split, (_, labels) in result.items()
        if labels.max() >= classes
    ]
    shapes = {images.shape[1:] for images, _ in result.values()}
    if len(shapes) > 1:
        wrong.append(f"images to train on and to validate with differ in size: {sorted(shapes)}")
    if wrong:
        raise _error(folder, wrong)


def _of(folder: str | Path, splits: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    place = Path(folder).expanduser()
    result: dict[str, list[np.ndarray]] = {split: [] for split in splits}
    wrong = [] if place.is_dir() else ["there is no such folder"]
    for split in splits:
        for name, dimensions in (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1)):
            try:
                result[split].append(_file(place, f"{PARTS[split]}-{name}", dimensions))
            except ValueError as error:
                wrong.append(str(error))
    for split, arrays in result.items():
        counts = [len(array) for array in arrays]
        if len(counts) == 2 and counts[0] != counts[1]:
            wrong.append(
                f"{PARTS[split]}: {counts[0]:,} images and {counts[1]:,} labels do not belong "
                "together"
            )
        elif 0 in counts:
            wrong.append(f"{PARTS[split]}: there is nothing in it")
    if wrong:
        raise _error(folder, wrong)
    return {split: (images, labels) for split, (images, labels) in result.items()}


def _file(place: Path, name: str, dimensions: int) -> np.ndarray:
    """Return the numbers of one file. Raises ValueError, which names the fault."""
    # Some mirrors have a dot instead of the second hyphen.
    names = [name, name.replace("-idx", ".idx")]
    paths = [place / f"{one}{end}" for one in names for end in ("", ".gz")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        what, fashion, digits = USUAL[name]
        raise ValueError(
            f"{name}.gz is missing: {what}; {fashion} of Fashion-MNIST, {digits} of MNIST"
        )
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":  # whatever it is called
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path.name} cannot be read: {error}. Get it again") from None
    return _numbers(path.name, data, dimensions)


def _numbers(name: str, data: bytes, dimensions: int) -> np.ndarray:
    head = 4 + 4 * dimensions
    if len(data) < head or data[:4] != bytes((0, 0, UNSIGNED_BYTE, dimensions)):
        kind = "images" if dimensions == 3 else "labels"
        raise ValueError(
            f"{name} is not an IDX file of {kind}: it begins with {data[:4].hex(' ') or 'nothing'} "
            f"where 00 00 08 0{dimensions} is expected. Is it a page of a web site? Get it again"
        )
    shape = struct.unpack(f">{dimensions}I", data[4:head])
    if len(data) - head != math.prod(shape):
        text = " x ".join(map(str, shape))
        raise ValueError(
            f"{name} is {'cut off' if len(data) - head < math.prod(shape) else 'too long'}: it "
            f"says {text} and has {len(data) - head:,} of {math.prod(shape):,} bytes. Get it again"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _error(folder: str | Path, wrong: Sequence[str]) -> SpecError:
    words = (
        f"{Path(folder).expanduser().absolute()} does not hold the data set:\n"
        + "".join(f"  {one}\n" for one in wrong)
        + "Put the four files of Fashion-MNIST (github.com/zalandoresearch/fashion-mnist, "
        "data/fashion) or of MNIST there, gzipped or not; or name the folder that has them: "
        "task_options={'folder': ...}. Where torchvision has fetched them, it is "
        "FashionMNIST/raw or MNIST/raw below its root."
    )
    return MissingFiles(
        problems=SpecError.at("task_options.folder", words, str(folder))
        .within("Experiment")
        .problems
    )
