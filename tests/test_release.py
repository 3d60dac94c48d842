"""What is released: an sdist, a wheel that is built from it, and an empty environment for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import yaml

import workbench as wb

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert wb.__version__ == PROJECT["version"] == citation["version"]
    assert citation["license"] == PROJECT["license"] and citation["authors"]
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_container_names_what_there_is() -> None:
    recipe = (ROOT / "Dockerfile").read_text()
    for extras in re.findall(r'"\.\[([\w,]+)\]"', recipe):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert re.findall(r"notebooks/\w+\.ipynb", recipe)
    for notebook in re.findall(r"notebooks/\w+\.ipynb", recipe):
        assert (ROOT / notebook).exists()
    (exposed,) = re.findall(r"^EXPOSE (.+)$", recipe, re.M)
    devcontainer = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert devcontainer["forwardPorts"] == [int(port) for port in exposed.split()]
    there = ROOT / ".devcontainer" / devcontainer["build"]["dockerfile"]
    assert there.resolve() == ROOT / "Dockerfile"


def run(*words: str | Path, cwd: Path, seconds: float = 900) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_a_wheel_from_the_sdist_runs_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    """And it holds nothing that is not of the package: no test, no notebook."""
    maker, empty, out = tmp_path / "maker", tmp_path / "empty", tmp_path / "out"
    for folder in (maker, empty):
        venv.create(folder, with_pip=True)
    run(maker / "bin/pip", "install", "--quiet", "build", cwd=tmp_path)
    run(maker / "bin/python", "-m", "build", "--outdir", out, ROOT, cwd=tmp_path)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    names = run(sys.executable, "-m", "zipfile", "-l", wheel, cwd=tmp_path)
    assert "workbench/exercises/chapter_01.py" in names and "workbench/_assets/" in names
    assert "workbench/_assets/thumbnails/ring.light.webp" in names
    assert "tests/" not in names and ".ipynb" not in names
    listed = run(sys.executable, "-m", "tarfile", "-l", sdist, cwd=tmp_path)
    for name in ("notebooks/00_start_here.ipynb", "CITATION.cff", "Dockerfile", "docs/slurm.md"):
        assert name in listed, name

    run(empty / "bin/pip", "install", "--quiet", wheel, cwd=tmp_path, seconds=1800)
    printed = run(empty / "bin/workbench", "demo", cwd=tmp_path)
    assert "loss" in printed and (tmp_path / "runs/demo.html").stat().st_size > 100_000
