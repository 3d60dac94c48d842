"""Public trainers by name, unmodified, under ``workbench attach``: what they print, losses with
every digit, is as without it, and every collective is seen, by the count of torch's own recorder.

Their packages are in an environment of their own, which `make test-all` makes (install.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attaching import compared, install

PROGRAMS = Path(__file__).parent / "public"
PACKAGES = {
    "accelerate_loop": "accelerate",
    "transformers_trainer": "transformers",
    "lightning_ddp": "lightning",
    "lightning_fsdp": "lightning",
}


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_trainer_prints_the_same_and_every_collective_is_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not install.has(package := PACKAGES[name]):
        pytest.skip(f"not run here: {package} could not be installed")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    program = [str(PROGRAMS / f"{name}.py")]
    compared.prints_the_same_and_every_collective_is_seen(program, tmp_path, python=install.PYTHON)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_mesh_of_data_and_tensor_parallelism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = [str(PROGRAMS / "mesh_of_two.py")]
    compared.prints_the_same_and_every_collective_is_seen(program, tmp_path, size=4)
