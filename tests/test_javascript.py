"""The front end's pure functions, tested by node without a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from workbench.front_end import assets
from workbench.front_end.assets import (
    asset,
    modules,
    scene_file,
    scene_manifests,
    stage_module,
)
from workbench.front_end.javascript import bundle, declared, needed
from workbench.front_end.smaller_javascript import smaller

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
    """No import is left: hosts import it from a Blob."""
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


# Parsed by node's own acorn; where a piece stands in its file does not matter.
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
    assert "MIT licence" in stage_module(), "a license stays with its code"


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


FILES = {
    "a/one.js": "const SIZE = 1;\nexport function size() {\n  return SIZE;\n}\n",
    "a/two.js": (
        'import { size as inner } from "./one.js";\nconst SIZE = 10;\n'
        "export const size = () => SIZE + inner();\n"
    ),
    "end.js": (
        'import { size } from "./a/two.js";\nimport { size as small } from "./a/one.js";\n'
        "export const sizes = [size(), small()];\nexport default { sizes };\n"
    ),
}


def test_two_files_may_declare_and_export_the_same_name(node: str) -> None:
    """A name need be unique in its file only."""
    text = bundle(needed(["end.js"], FILES.__getitem__), ["end.js"]).exporting("end.js")
    script = (
        f"const one = await import('data:text/javascript,' + {json.dumps(quote(text))});"
        "console.log(JSON.stringify([one.sizes, one.default.sizes]))"
    )
    done = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[[11,1],[11,1]]\n", done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    {
        'import { gone } from "./a/one.js";\n': "end.js imports gone, which a/one.js does not",
        'import { size } from "./a/one.js";\nconst size = 1;\n': "end.js declares size twice",
        "let a = 1;\nvar a = 2;\n": "end.js declares a twice",
        "export let a = 1;\n": "end.js: export let a.*: export a constant",
        'export { size } from "./a/one.js";\n': "end.js: export .*: export a constant",
        'import { end } from "./end.js";\n': "in a circle: end.js -> end.js",
        'import * as a from "./a.js";\n': r"end.js: .*write import \{ name \}",
        'import a from "./a.js";\n': r"end.js: .*write import \{ name \}",
    }.items(),
)
def test_what_a_browser_would_refuse_without_a_word_is_refused(text: str, words: str) -> None:
    """The saved page would stay blank."""
    files = FILES | {"end.js": text}
    with pytest.raises(ImportError, match=words):
        bundle(needed(["end.js"], files.__getitem__), ["end.js"])


def test_every_file_of_the_front_end_is_used() -> None:
    """By the stage, or as a module of its own: the saved page's, the notebook's, small widgets."""
    root = asset("chrome/stage.js").parent.parent
    here = {path.relative_to(root).as_posix() for path in root.rglob("*.js")}
    assert here == set(modules(*ENTRIES, *(f"widgets/{one}.js" for one in WIDGETS)))
