"""The front end's pure functions, tested by node without a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workbench import _assets
from workbench._assets import asset, clashes, declared, modules, stage_module

TESTS = sorted((Path(__file__).parent / "js").glob("*.test.js"))


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    assert found, "these tests need node 20 or newer; on Debian: apt-get install nodejs"
    return found


@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem.removesuffix(".test"))
def test_of_the_front_end(test: Path, node: str) -> None:
    done = subprocess.run(
        [node, "--test", str(test)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_the_joined_module_is_one_module(node: str) -> None:
    """No import is left (hosts import it from a Blob), and no name is there twice."""
    text = stage_module()
    assert re.findall(r"^import ", text, re.M) == []
    done = subprocess.run(
        [node, "--input-type=module", "--check", "-"],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_names_that_a_file_declares() -> None:
    text = (
        'import { a } from "./b.js";\nconst ONE = 1, TWO = [2, THREE], FOUR = "x, FIVE = 5";\n'
        "export const six = (/** @type {number} */ seven) => ({ eight: seven, nine: 9 });\n"
        "export async function ten(eleven) {\n  const twelve = 12;\n}\n"
        "class Thirteen {\n}\nlet f;\n"
    )
    assert declared(text) == ["ONE", "TWO", "FOUR", "six", "ten", "Thirteen", "f"]


def test_a_name_that_two_files_declare_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser would say nothing, and the saved page stay blank."""
    files = {"a.js": "const SIZE = 1, GAP = 2;\n", "b.js": "function more() {}\nconst GAP = 3;\n"}
    assert clashes(files) == {"GAP": ["a.js", "b.js"]}
    text = {name: asset(name).read_text() for name in modules()}
    assert clashes(text) == {}
    text["tip.js"] += f"\nconst {declared(text['words.js'])[0]} = 1;\n"
    monkeypatch.setattr(_assets, "clashes", lambda _: clashes(text))
    with pytest.raises(ImportError, match=r"is declared in .*words\.js"):
        stage_module.__wrapped__()


def test_every_file_of_the_front_end_is_used() -> None:
    """By the stage, or as a module of its own: the saved page's, and two small widgets."""
    here = {path.name for path in asset("stage.js").parent.glob("*.js")}
    own = ("stage.js", "unpack.js", "ground.js", "copy.js")
    assert here == {name for entry in own for name in modules(entry)}
