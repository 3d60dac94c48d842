"""Variables of the environment: each is listed once, and what cannot be is refused by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.common import environment
from workbench.common.environment import VARIABLES, text, whole
from workbench.common.errors import SpecError
from workbench.process_group.session import _from_environment

ROOT = Path(__file__).parents[2]
NAME = r"WORKBENCH_[A-Z_]*[A-Z]"
ITSELF = ROOT / "workbench/common/environment.py"
# How our own tests are run: they are said where they are read.
OF_TESTS = {
    "WORKBENCH_TEST_RUN",
    "WORKBENCH_CHROMIUM",
    "WORKBENCH_PICTURES",
    "WORKBENCH_OF_A_TEST",
    "WORKBENCH_YOUNG",
}


def read() -> Iterator[tuple[str, str | None]]:
    """The variables that the package's code names, with the default that stands beside one."""
    for path in (ROOT / "workbench").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        if path == ITSELF or not ("WORKBENCH_" in code or "os.environ" in code):
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and "os.environ" in ast.unparse(node.func):
                values = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if len(values) == 2:
                    yield values[0], str(values[1])
            if isinstance(node, ast.Constant) and re.fullmatch(NAME, str(node.value)):
                yield str(node.value), None


def test_what_the_code_reads_is_listed_and_what_is_listed_is_read() -> None:
    assert {name for name, _ in read() if name.startswith("WORKBENCH_")} == set(VARIABLES)
    assert all(one.meaning for one in VARIABLES.values())
    for name, default in read():
        if default is not None and name in VARIABLES:
            assert default == VARIABLES[name].default, name


def test_no_variable_is_spoken_of_that_is_not_there() -> None:
    mentions = set()
    for pattern in (
        "README.md",
        "CHANGELOG.md",
        "workbench/**/*.py",
        "tests/**/*.py",
        "tools/**/*.py",
        "notebooks/*.ipynb",
    ):
        for path in ROOT.glob(pattern):
            mentions |= set(re.findall(rf"\b{NAME}\b", path.read_text()))
    assert mentions - OF_TESTS <= set(VARIABLES)


def test_a_default_holds_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, ""):
        monkeypatch.delenv("WORKBENCH_CHUNK", raising=False)
        if value is not None:
            monkeypatch.setenv("WORKBENCH_CHUNK", value)
        assert text("WORKBENCH_CHUNK") == "524288" and whole("WORKBENCH_CHUNK", 64, 64) == 524288


@pytest.mark.parametrize("value", ["1 MB", "-64", "0", "100", "1e6", "٦٤", "9" * 5000])
def test_what_is_not_a_size_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CHUNK", value)
    if value == "٦٤":  # Python reads every script's digits
        assert whole("WORKBENCH_CHUNK", 64, 64) == 64
        return
    with pytest.raises(SpecError, match=r"WORKBENCH_CHUNK=.* whole number from 64 up, a multiple"):
        _from_environment(0)


def test_the_readme_leads_to_the_list() -> None:
    path = Path(environment.__file__).relative_to(ROOT).as_posix()
    assert f"({path})" in (ROOT / "README.md").read_text()
