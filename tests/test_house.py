"""The house: what README, environment.yml, Makefile and pyproject.toml say is true."""

from __future__ import annotations

import ast
import hashlib
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from typer.testing import CliRunner

from tests.conftest import orphans, processes, remains
from tests.mutants import MUTANTS, Mutant
from workbench.cli import app as cli

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()
PARTICIPLES = {"told", "said", "found", "made"}  # they say nothing of what a variable holds


def requirements() -> dict[str, str]:
    """Package -> range, over the dependencies and every extra of pyproject.toml."""
    project = PYPROJECT["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    parsed = [Requirement(line) for line in lines]
    return {r.name: str(r.specifier) for r in parsed if r.name != project["name"]}


def test_environment_yml_has_the_ranges_of_pyproject() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *plain, last = environment["dependencies"]
    assert plain == [f"python{PYPROJECT['project']['requires-python']}", "pip"]
    *named, editable = last["pip"]
    assert editable == "-e .[all]"
    theirs = {r.name: str(r.specifier) for r in map(Requirement, named)}
    assert set(theirs) == {"jupyterlab", "ipywidgets", "torch", "plotly", "panel", "nbval"}
    ours = requirements()
    assert theirs == {name: ours[name] for name in theirs}


def test_the_pinned_torch_is_one_that_pyproject_allows() -> None:
    pinned = re.search(r"^PINNED := torch==(\S+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    assert Requirement(f"torch{requirements()['torch']}").specifier.contains(pinned)


def test_every_path_that_the_documents_name_exists() -> None:
    """In code marks or in drawings: ``runs/steering.py`` is a file of the package."""
    for name in ("README.md", "ARCHITECTURE.md"):
        text = (ROOT / name).read_text()
        named = set(re.findall(r"(?<![\w./-])(?:\w+/)+(?:\w+\.(?:py|js|md|yml))?(?![\w/.])", text))
        known = ("", "workbench/", "assets/")
        lost = [path for path in named if not any((ROOT / at / path).exists() for at in known)]
        assert sorted(lost) == [], name
        assert named, name


def test_every_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.M)[1].split()) - {"again"}
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.M))
    assert named <= targets
    assert targets <= set(re.findall(r"^#   make ([a-z-]+) ", makefile, re.M)), (
        "say in its head what a target does"
    )
    assert {"demo", "lab", "serve", "test"} <= named


def test_what_others_run_is_what_make_runs() -> None:
    """Workflows and the hooks before a commit have no commands of their own."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.M)[1].split())
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    runs = [
        step["run"]
        for path in workflows
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert {"make test", "make check"} <= {" ".join(run.split()[:2]) for run in runs}
    for run in runs:
        assert re.search(r"\bmake ([a-z-]+)", run)[1] in targets, run
    check = makefile.split("\ncheck:")[1].split("\n\n")[0].replace("$(BIN)", ".venv/bin")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        assert hook["entry"] in check.replace("ruff format --check", "ruff format"), hook["id"]


def test_links_and_pictures_in_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README) + re.findall(
        r'(?:src|href)="([^"#]+)"', README
    )
    local = [link for link in links if not link.startswith("http")]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_links_of_the_guides_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_python_in_the_readme_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        ast.parse(block)


def test_imports_of_the_package_are_declared() -> None:
    """Nothing is imported that pyproject.toml does not name."""
    declared = {name.lower() for name in requirements()} - {"pyyaml", "annotated-types"} | {
        "annotated_types",
        "yaml",
        "ipython",
        "bokeh",
        "param",
        "tornado",
        "traitlets",
        "workbench",
        "_workbench_autoload",  # a file of ours, which the wheel has beside the package
    }
    imports = set()
    for path in (ROOT / "workbench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imports |= {alias.name.split(".")[0].lower() for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imports.add(node.module.split(".")[0].lower())
    assert sorted(imports - declared - set(sys.stdlib_module_names)) == []


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of every class, function, argument, variable and attribute of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


_BARE = re.compile(rf"(?<![^\W_])(?:{'|'.join(PARTICIPLES)})(?![^\W_])", re.IGNORECASE)


@pytest.mark.parametrize("room", ["workbench", "tests", "tools"])
def test_a_name_is_not_a_bare_participle(room: str) -> None:
    """``notices``, ``answer`` or ``violations`` say what a variable holds; ``told`` does not."""
    bare, count = [], 0
    for path in sorted((ROOT / room).rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        count += 1
        if not _BARE.search(code):  # most: they need not be parsed
            continue
        for line, name in defined_names(ast.parse(code)):
            if name.strip("_") in {*PARTICIPLES, *map(str.title, PARTICIPLES)}:
                bare.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not bare, "name each by what it holds:\n" + "\n".join(bare)
    assert count > 50, "no files were read"


def test_import_workbench_leaves_the_user_interface_alone() -> None:
    heavy = ("IPython", "ipywidgets", "anywidget", "jupyterlab", "panel", "bokeh", "plotly")
    code = f"import sys, workbench; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_digits_are_whole_and_load_without_pickle() -> None:
    with np.load(ROOT / "assets/data/digits.npz", allow_pickle=False) as digits:
        images, labels = digits["images"], digits["labels"]
    assert images.shape == (1797, 8, 8) and images.dtype == np.uint8 and images.max() == 16
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    assert digest == "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    license = (ROOT / "assets/data/digits.LICENSE.txt").read_text()
    assert "10.24432/C50P49" in license and "CC BY 4.0" in license


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert (
        hashlib.sha256(text).hexdigest()
        == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    )
    assert PYPROJECT["project"]["license"] == "Apache-2.0"


def test_an_orphan_of_a_test_is_found() -> None:
    """The check behind every test can itself fail: a process whose driver was killed is seen."""
    sleeper = "import time; time.sleep(30)  # multiprocessing.spawn"
    driver = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {sleeper!r}]); time.sleep(30)"
    )
    parent = subprocess.Popen([sys.executable, "-c", driver])
    try:
        assert remains(lambda: not children(parent.pid), 10) is False, "the sleeper never came up"
        (pid,) = children(parent.pid)
        assert pid not in orphans(), "a process whose parent lives is not an orphan"
        parent.kill()
        parent.wait()
        assert remains(lambda: pid not in orphans()) is False
    finally:
        parent.kill()
        for pid in [pid for pid, (_, command) in processes().items() if sleeper in command]:
            subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pid)], check=False)
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [child for child, (parent, _) in processes().items() if parent == pid]


@pytest.mark.parametrize("command", ["run", "lab", "serve", "demo"])
def test_the_command_line_has_what_the_contract_names(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "--help"])
    assert done.exit_code == 0, done.output
    assert f" {command} " in done.stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.file)
def test_a_mutant_breaks_a_line_that_is_there_and_its_tests_are(mutant: Mutant) -> None:
    """So that ``python -m tests.mutants`` can run, which takes some minutes."""
    assert (ROOT / "workbench" / mutant.file).read_text().count(mutant.old) == 1
    files = [word for word in mutant.tests if word.endswith(".py")]
    assert files and all((ROOT / "tests" / file).exists() for file in files)


NOT_OURS = ("path/to/file.py", "studies/twice.py", "torch/")  # examples, and files of torch


def test_every_file_that_the_code_names_is_there() -> None:
    """``training/pipelines/stage.py`` in a docstring or an error: from the package, or the root."""
    missing, count = [], 0
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        for name in re.findall(r"(?<![\w/.~])((?:\w+/)+\w+\.py)\b", path.read_text()):
            count += 1
            homes = (ROOT, ROOT / "workbench", path.parent)
            if not name.startswith(NOT_OURS) and not any((one / name).is_file() for one in homes):
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, "\n".join(missing)
    assert count > 50, "no names were read"


def opened_in_the_locales_encoding(code: str) -> Iterator[str]:
    """Yield calls in ``code`` that read or write text and do not say in which encoding; of other
    programs' output, what becomes of bytes that are not in it.
    """
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
        words = [one.value for one in node.args if isinstance(one, ast.Constant)]
        is_binary = any("b" in str(mode) for mode in [*words[-1:], given.get("mode", "")])
        if name in ("read_text", "write_text"):
            silent = isinstance(node.func, ast.Attribute) and "encoding" not in given
        elif name in ("open", "fdopen", "NamedTemporaryFile", "TemporaryFile"):
            of = getattr(getattr(node.func, "value", None), "id", "")
            starred = any(isinstance(one, ast.Starred) for one in node.args)
            is_file = (
                bool(node.args) and not starred and f"{of}.{name}" not in ("os.open", "job.open")
            )
            silent = is_file and not is_binary and "encoding" not in given
        else:
            silent = given.get("text") is True and not {"encoding", "errors"} & given.keys()
        if silent:
            yield f"line {node.lineno}: {ast.unparse(node)}"


_OPENS = re.compile(r"read_text|write_text|open|TemporaryFile|text\s*=\s*True")


def test_text_is_read_and_written_in_an_encoding_that_is_named() -> None:
    files = [*(ROOT / "workbench").rglob("*.py"), *(ROOT / "docs").rglob("*.py")]
    calls_in = {
        str(file.relative_to(ROOT)): calls
        for file in [*files, ROOT / "build_mover.py"]
        if _OPENS.search(code := file.read_text(encoding="utf-8"))
        and (calls := [*opened_in_the_locales_encoding(code)])
    }
    assert len(files) > 300 and calls_in == {}


def test_text_in_the_locales_encoding_is_found() -> None:
    code = """
open("a"); open("a", "w"); Path("a").open("r"); file.read_text(); file.write_text("b")
os.fdopen(3); run(words, text=True)
open("a", "rb"); os.open("a", 0); file.read_text(encoding="utf-8"); write_text("a", "what", "b")
page.open(); run(words, text=True, errors="replace"); open("a", encoding="utf-8")
"""
    assert len([*opened_in_the_locales_encoding(code)]) == 7
