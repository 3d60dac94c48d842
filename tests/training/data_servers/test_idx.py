"""MNIST's files: read whether gzipped or not; what is missing or broken is said before a start."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.common import idx

COUNTS = {"train": 60, "t10k": 20}


def written(folder: Path, *, zipped: bool, size: int = 28, seed: int = 0) -> dict[str, np.ndarray]:
    """Files as MNIST's are named, of random pictures; a picture's brightness tells its label."""
    draw, arrays = np.random.default_rng(seed), {}
    for part, count in COUNTS.items():
        labels = (np.arange(count) % 10).astype(np.uint8)
        noise = draw.integers(0, 20, (count, size, size))
        images = (noise + 23 * labels[:, None, None]).astype(np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            put(folder, f"{part}-{name}-ubyte", head + array.tobytes(), zipped=zipped)
            arrays[f"{part}-{name}"] = array
    return arrays


def put(folder: Path, name: str, data: bytes, *, zipped: bool) -> None:
    path = folder / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(data) if zipped else data)


def fashion(folder: Path, **fields: Any) -> wb.Experiment:
    options = {"folder": str(folder), **fields.pop("task_options", {})}
    return wb.Experiment(
        **{
            "task": "mlp_fashion",
            "task_options": options,
            "ranks": 2,
            "iterations": 60,
            "batch_size": 20,
            **fields,
        }
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_what_is_read_is_what_was_written(tmp_path: Path, zipped: bool) -> None:
    arrays = written(tmp_path, zipped=zipped)
    for split, part in idx.PARTS.items():
        images, labels = idx.read(tmp_path, split)
        assert (images == arrays[f"{part}-images-idx3"]).all() and images.dtype == np.uint8
        assert (labels == arrays[f"{part}-labels-idx1"]).all()


def test_a_dot_in_the_name_and_a_wrong_ending_are_forgiven(tmp_path: Path) -> None:
    arrays = written(tmp_path, zipped=True)
    (tmp_path / "train-images-idx3-ubyte.gz").rename(tmp_path / "train-images.idx3-ubyte")
    assert (idx.read(tmp_path, "train")[0] == arrays["train-images-idx3"]).all()


@pytest.mark.full
def test_it_trains_on_them_and_equals_sequential(tmp_path: Path) -> None:
    written(tmp_path, zipped=True)
    alone = wb.run(fashion(tmp_path, strategy="sequential", ranks=1)).wait(timeout=60)
    both = wb.run(fashion(tmp_path)).wait(timeout=60)
    assert np.abs(np.subtract(alone.losses, both.losses)).max() < 1e-5
    assert alone.losses[-1] < 0.8 * alone.losses[0]
    assert both.metrics["accuracy"] > 0.5
    assert sum(value.numel() for value in both.parameters.values()) == 109_386  # 784-128-64-10


def test_options_change_the_model_and_the_samples(tmp_path: Path) -> None:
    written(tmp_path, zipped=False, size=8)
    exp = fashion(
        tmp_path,
        ranks=1,
        iterations=2,
        strategy="sequential",
        batch_size=100,
        task_options={"hidden": [5], "samples": 15},
    )
    run = wb.run(exp)
    result = run.wait(timeout=60)
    assert result.parameters["1.weight"].shape == (5, 64)
    assert set(run.events.filter(name="samples")["value"]) == {15}


# -- what is missing or broken --


def refused(folder: Path, **fields: Any) -> str:
    """The words with which a run of it is refused, before any process starts."""
    with pytest.raises(wb.SpecError) as caught:
        wb.run(fashion(folder, **fields))
    return str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    words = refused(tmp_path / "none")
    assert "there is no such folder" in words and str(tmp_path / "none") in words
    assert words.count("is missing") == 4 and "26.4 MB of Fashion-MNIST" in words
    assert "github.com/zalandoresearch/fashion-mnist" in words and "gzipped or not" in words


@pytest.mark.parametrize("name", idx.USUAL)
def test_a_file_that_is_missing_is_named_and_only_that(tmp_path: Path, name: str) -> None:
    written(tmp_path, zipped=True)
    (tmp_path / f"{name}.gz").unlink()
    words = refused(tmp_path)
    assert f"{name}.gz is missing: {idx.USUAL[name][0]}" in words
    assert words.count("is missing") == 1


def broken(data: bytes, how: str) -> bytes:
    return {
        "cut off": data[:-7],
        "too long": data + b"x",
        "a page": b"<!DOCTYPE html><p>404",
        "nothing": b"",
        "other": bytes((0, 0, 13)) + data[3:],  # floating numbers
    }[how]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut off", "is cut off: it says 60 x 28 x 28"),
        ("too long", "is too long"),
        ("a page", "is not an IDX file of images: it begins with 3c 21 44 4f"),
        ("nothing", "it begins with nothing"),
        ("other", "where 00 00 08 03 is expected"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, how: str, message: str) -> None:
    written(tmp_path, zipped=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(broken(path.read_bytes(), how))
    words = refused(tmp_path)
    assert message in words and "train-images-idx3-ubyte" in words and "Get it again" in words


@pytest.mark.parametrize("left", [3, 20, -3])
def test_a_download_that_was_cut_off(tmp_path: Path, left: int) -> None:
    written(tmp_path, zipped=True)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:left])
    assert "t10k-labels-idx1-ubyte.gz" in refused(tmp_path)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    written(tmp_path, zipped=False)
    labels = struct.pack(">HBBI", 0, 8, 1, 59) + bytes(59)
    put(tmp_path, "train-labels-idx1-ubyte", labels, zipped=False)
    assert "60 images and 59 labels" in refused(tmp_path)
    labels = struct.pack(">HBBI", 0, 8, 1, 60) + bytes([26] * 60)
    put(tmp_path, "train-labels-idx1-ubyte", labels, zipped=False)
    assert "has the label 26: they are 0 to 9" in refused(tmp_path)


def test_options_that_cannot_be(tmp_path: Path) -> None:
    written(tmp_path, zipped=False)
    assert "hidden = [0]" in refused(tmp_path, task_options={"hidden": [0]})
    assert "samples = 0" in refused(tmp_path, task_options={"samples": 0})


def test_a_spec_can_be_read_where_its_files_are_not() -> None:
    exp = wb.Experiment(task="mlp_fashion", task_options={"folder": "/none"})
    assert wb.Experiment.from_yaml(exp.to_yaml()) == exp


def test_a_folder_is_looked_for_where_the_driver_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes that ranks come from may have been started elsewhere."""
    wb.run(wb.Experiment(ranks=1, strategy="sequential", iterations=1)).wait(timeout=60)
    (tmp_path / "own").mkdir()
    written(tmp_path / "own", zipped=False)
    monkeypatch.chdir(tmp_path)
    assert wb.run(fashion(Path("own"), iterations=1)).wait(timeout=60).ok
