"""No strategy, consistency policy or schedule is named where all of them are dealt with alike.

What a file needs to know of them, they say themselves: experiment/traits.py, a policy's class
(training/parameter_servers/clocks.py), a schedule's file. So one that a user adds is treated as
ours are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.experiment.traits import traits_of, with_traits
from workbench.user_code import source

ROOT = Path(__file__).parents[1]
KINDS = ("strategies", "consistency", "schedules")
# Folders whose files name what they show, grade or check.
NAMING = {*KINDS, "presets", "exercises", "tasks", "laws", "theory"}
SUFFIXES = {".py", ".js", ".json", ".html"}
KEY = "a key of what is stored with a run, or an axis of ranks"
ORDER = "the order in which one process draws samples"
EXCEPTIONS = {
    "workbench/experiment/fields.py": ({"data_parallel"}, "the default of an Experiment"),
    "workbench/interface/demo.py": ({"data_parallel", "sequential"}, "a demonstration of one"),
    "workbench/interface/gallery.py": ({"ddp", "ssp", "pipeline", "gossip"}, "files of pictures"),
    "workbench/studies/drift/subjects.py": (
        {"data_parallel", "sequential"},
        "what is compared, where nothing is said, and the reference that all are compared with",
    ),
    "workbench/analysis/stages.py": ({"pipeline"}, KEY),
    "workbench/runs/display_mixin.py": ({"pipeline"}, KEY),
    "workbench/training/pipelines/facts.py": ({"pipeline"}, KEY),
    "workbench/views/scenes/pipeline.py": ({"pipeline"}, KEY),
    "workbench/views/stills/pipeline.py": ({"pipeline"}, KEY),
    "assets/scenes/pipeline/scene.json": ({"pipeline"}, KEY),
    "assets/scenes/pipeline/mesh.js": ({"pipeline"}, KEY),
    "workbench/analysis/axes.py": ({"fsdp", "mesh", "zero"}, KEY),
    "workbench/formulas/grid.py": ({"fsdp", "mesh"}, KEY),
    "workbench/formulas/mesh.py": ({"fsdp"}, KEY),
    "workbench/training/mesh/rank.py": ({"fsdp", "mesh"}, KEY),
    "workbench/training/mesh/shapes.py": ({"zero"}, KEY),
    "workbench/training/sampling/minibatches.py": ({"sequential"}, ORDER),
    "workbench/views/stills/svg_samples.py": ({"sequential"}, ORDER),
}


def shipped() -> set[str]:
    return {name for kind in KINDS for name in source.available(kind)}


def texts(path: Path) -> Iterator[str]:
    """Yield a file's texts in quotes, but for docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        text = re.sub(r"/\*.*?\*/|(?<![:\"'])//[^\n]*", "", text, flags=re.S)
        yield from (two for _, two in re.findall(r"([\"'`])((?:\\.|(?!\1)[^\\\n])*)\1", text))
        return
    tree = ast.parse(text)
    nodes = [*ast.walk(tree)]
    described = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    heads = [one.body[0] for one in nodes if isinstance(one, described) and one.body]
    docstrings = {id(one.value) for one in heads if isinstance(one, ast.Expr)}
    values = (one for one in nodes if isinstance(one, ast.Constant) and id(one) not in docstrings)
    yield from (one.value for one in values if isinstance(one.value, str))


def named(path: Path, names: set[str]) -> set[str]:
    """Return those of ``names`` that a file has as a text, or in quotes in a text."""
    written = {*texts(path)}
    inside = re.compile(r"[\"'](\w+)[\"']")
    return names & (written | {name for text in written for name in inside.findall(text)})


def files() -> Iterator[tuple[str, Path]]:
    for folder in ("workbench", "assets"):
        for path in sorted((ROOT / folder).rglob("*")):
            place = path.relative_to(ROOT)
            if path.suffix in SUFFIXES and place.parts[1] not in NAMING:
                yield place.as_posix(), path


def test_no_strategy_policy_or_schedule_is_named_elsewhere() -> None:
    names = shipped()
    assert {"data_parallel", "bsp", "1f1b"} <= names and len(names) > 30
    naming = {place: those for place, path in files() if (those := named(path, names))}
    assert naming == {place: those for place, (those, _) in EXCEPTIONS.items()}


@pytest.mark.parametrize(
    ("name", "text", "finds"),
    [
        ("a.py", 'if exp.strategy == "ddp":\n    pass\n', True),
        ("a.py", "raise SpecError(f\"take strategy='ddp', or {x}\")\n", True),
        ("a.py", '"""As in strategy="ddp"."""\nx = 1  # "ddp"\n', False),
        ("a.js", 'run.strategy === "ddp"', True),
        ("a.js", "const say = `ddp`;", True),
        ("a.js", '// "ddp"\n/** "ddp" */ const url = "http://x";', False),
    ],
)
def test_a_name_is_found(tmp_path: Path, name: str, text: str, finds: bool) -> None:
    (tmp_path / name).write_text(text)
    assert named(tmp_path / name, {"ddp"}) == ({"ddp"} if finds else set())


def test_sentences_about_ranks_have_braces_that_pages_fill() -> None:
    """``filled`` of assets/engine/run_words.js fills these."""
    names = with_traits(lambda one: bool(one.together))
    assert "data_parallel" in names
    for name, sentence in ((name, traits_of(name).together) for name in names):
        assert {*re.findall(r"{(\w+)}", sentence)} <= {"share", "averages", "all"}, name
