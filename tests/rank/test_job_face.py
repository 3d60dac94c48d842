"""What a strategy uses of ``Job``, and what the rank's machinery keeps for itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from workbench.rank.job import Job

ROOT = Path(__file__).parents[2]
STRATEGIES = sorted((ROOT / "workbench/strategies").glob("*.py"))
# Strategies with machinery of their own on a rank: what they use beside the face.
BESIDE = {
    "ad_psgd": {"checkpoints"},
    "data_servers": {"checkpoints", "group", "parts"},
    "ddp": {
        "checkpoints", "device", "dtype", "memory", "metrics_group", "recorder", "team", "tell",
    },
    "gorila": {"build", "team"},
    "malt": {"checkpoints"},
    "parameter_server": {"memory", "recorder", "run_rank"},
    "tensor_parallel": {
        "batch", "build", "device", "digest", "metrics_group", "minibatches", "padded",
        "parameters", "recorder", "tell", "train",
    },
}  # fmt: skip
# Attributes that are still written from outside. None is added: a method of Job says what is meant.
WRITTEN = {
    "begins", "begun", "carried", "completed", "digest", "ended_ns", "history", "lead", "losses",
    "memory", "metrics", "parameters", "partial", "replica", "samples", "served", "started_ns",
    "take_over", "taken", "train",
}  # fmt: skip


def face() -> set[str]:
    """Return the names of the table in CONTRIBUTING.md."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = guide.partition("What `job` has")[2].partition("\n\n### ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


def attributes(path: Path, job: str = "job") -> Iterator[tuple[str, bool]]:
    """Yield each attribute of a job that a file names, and whether it is written there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute):
            continue
        match node.value:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name.removeprefix("_") == job:
                yield node.attr, isinstance(node.ctx, ast.Store)


def test_a_strategy_uses_the_face_that_the_guide_lists() -> None:
    names = face()
    assert {"rank", "iterations", "report", "finish"} <= names and len(names) < 22
    used = {path.stem: {name for name, _ in attributes(path)} - names for path in STRATEGIES}
    assert {name: more for name, more in used.items() if more} == BESIDE
    own = {name for name, _ in attributes(ROOT / "workbench/rank/job.py", "self")}
    assert names <= {*vars(Job)} | own


def test_no_other_attribute_of_a_job_is_written_from_outside() -> None:
    files = [path for path in (ROOT / "workbench").rglob("*.py") if path.name != "job.py"]
    written = {name for path in files for name, stored in attributes(path) if stored}
    assert written == WRITTEN
