"""The front end's pure functions, tested by node without a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workbench.common import assets
from workbench.common.assets import (
    asset,
    joined,
    modules,
    scene_file,
    scene_manifests,
    stage_module,
)
from workbench.common.javascript import clashes, declared, imported
from workbench.common.smaller_javascript import smaller

WIDGETS = ("unpack", "ground", "copy", "loader", "chart", "gallery")
ENTRIES = (assets.STAGE, *(scene_file(scene.name) for scene in scene_manifests()))
TESTS = Path(__file__).parent / "js" / "all.js"


@pytest.fixture(scope="session")
def node() -> str:
    path = shutil.which("node")
    assert path, "these tests need node 20 or newer; on Debian: apt-get install nodejs"
    return path


def test_of_the_front_end(node: str, pytestconfig: pytest.Config) -> None:
    """All files in one process of node."""
    sample = "not full" in pytestconfig.option.markexpr
    done = subprocess.run(
        [node, "--test-reporter=spec", str(TESTS)],
        env=os.environ | {"SAMPLE": "1" if sample else ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, _failed(done.stdout) + done.stderr[-2000:]


def _failed(report: str) -> str:
    """Return what node's report says of the tests that failed, which stand at its end."""
    return report[report.find("failing tests") :][:12000]


def test_the_joined_module_is_one_module(node: str) -> None:
    """No import is left (hosts import it from a Blob), and no name is there twice."""
    text = stage_module()
    assert re.findall(r"^import ", text, re.M) == []
    done = subprocess.run(
        [node, "--input-type=module", "--check", "-"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


# Parsed by node's own acorn; where a piece stands in its file is no part of what it means.
_SAME_TREES = r"""
const { Parser } = require("internal/deps/acorn/acorn/dist/acorn");
const tree = (text) => JSON.stringify(
  Parser.parse(text, { ecmaVersion: "latest", sourceType: "module" }),
  (key, value) => key === "start" || key === "end" ? undefined
    : typeof value === "bigint" || value instanceof RegExp ? String(value) : value,
);
const pairs = JSON.parse(require("fs").readFileSync(0, "utf8"));
const differ = Object.keys(pairs).filter((name) => tree(pairs[name][0]) !== tree(pairs[name][1]));
console.log(JSON.stringify(differ));
"""
_HARD = r"""
// a comment
const a = /[/'"`]\/\*/g.test("// no comment /* nor this */"), b = 4 / 2 / 1; /* one */ let c = 1
let d = c
++c
const e = `//  kept  ${{ f: `in  it ${a /* and here */}` }.f}  /* kept */`, g = (b) / 2 // 3
const h = (x) => x.replace(/'/, "it's"), i = [1, 2] / 2, j = a ? .5 : c-- > 1, k = b - -1 + +c
label: for (const of of [/a/ , /b/]) { if (of) continue label; else void /c/ }
class L { static #m = 1; n = () => L.#m
  "o" = 2;
  *p() { yield (/q/); return
    /r/g } get s() { return typeof /t/ in {} } }
"""


def test_what_is_sent_means_what_was_written(node: str) -> None:
    """Without comments and spaces each of our files has the tree that it had, and so has a file
    of what is hard to read: strings, templates, expressions, statements without a semicolon.
    """
    names = {*modules(*ENTRIES), *(f"widgets/{one}.js" for one in WIDGETS)}
    texts = {name: asset(name).read_text() for name in names} | {"hard": _HARD}
    pairs = {name: (text, smaller(text)) for name, text in texts.items()}
    done = subprocess.run(
        [node, "--expose-internals", "-e", _SAME_TREES],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == []
    assert "a comment" not in pairs["hard"][1] and "//  kept  " in pairs["hard"][1]
    whole = "".join(texts[name] for name in modules(*ENTRIES))
    assert len(stage_module()) < 0.65 * len(whole)
    assert "MIT licence" in stage_module(), "a licence stays with its code"


@pytest.mark.parametrize("text", ["a = `b ${c", "a = /b", 'a = "b', "a = `b"])
def test_a_file_that_ends_too_early_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"without an end|no JavaScript"):
        smaller(text)


def test_names_that_a_file_declares() -> None:
    text = (
        'import { a } from "./b.js";\nconst ONE = 1, TWO = [2, THREE], FOUR = "x, FIVE = 5";\n'
        "export const six = (/** @type {number} */ seven) => ({ eight: seven, nine: 9 });\n"
        "export async function ten(eleven) {\n  const twelve = 12;\n}\n"
        "class Thirteen {\n}\nlet f;\nconst many = [\n  14,\n  15,\n],\n  more = 16;\n"
    )
    names = ["ONE", "TWO", "FOUR", "six", "ten", "Thirteen", "f", "many", "more"]
    assert declared(text) == names


def test_a_name_that_two_files_declare_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser would say nothing, and the saved page stay blank."""
    files = {"a.js": "const SIZE = 1, GAP = 2;\n", "b.js": "function more() {}\nconst GAP = 3;\n"}
    assert clashes(files) == {"GAP": ["a.js", "b.js"]}
    text = {name: asset(name).read_text() for name in modules(*ENTRIES)}
    assert clashes(text) == {}
    text["drawing/tooltip.js"] += f"\nconst {declared(text['engine/format.js'])[0]} = 1;\n"
    monkeypatch.setattr(assets, "clashes", lambda _: clashes(text))
    with pytest.raises(ImportError, match=r"is declared in .*engine/format\.js"):
        joined.__wrapped__(assets.STAGE)


def test_an_import_that_could_not_be_left_out_is_refused() -> None:
    assert imported('import { a,\n  b } from "../x/y.js";\nconst c = 1;\n') == ["../x/y.js"]
    for line in ('import * as a from "./a.js";', 'import a from "./a.js";'):
        with pytest.raises(ValueError, match=r"write import \{ name \}"):
            imported(line)
    with pytest.raises(ValueError, match="without 'as'"):
        imported('import { a as b } from "./a.js";\n')


def test_every_file_of_the_front_end_is_used() -> None:
    """By the stage, or as a module of its own: the saved page's, the notebook's, small widgets."""
    root = asset("chrome/stage.js").parent.parent
    here = {path.relative_to(root).as_posix() for path in root.rglob("*.js")}
    assert here == set(modules(*ENTRIES, *(f"widgets/{one}.js" for one in WIDGETS)))


def test_the_modules_are_still_a_program_when_they_are_joined(tmp_path: Path) -> None:
    """Each for itself is one, and two may declare the same name in ways that no list sees."""
    joined = tmp_path / "stage.mjs"
    joined.write_text(stage_module(), encoding="utf-8")
    checked = subprocess.run(["node", "--check", joined], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
