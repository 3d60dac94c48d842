"""The imports and declarations of the front end's modules, read from their text.

It reads the subset of JavaScript that ours are written in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_DECLARES = re.compile(
    r"^(?:export )?(?:default )?(?:(?:async )?(?:function\*?|class) (?P<name>[\w$]+)"
    r"|(?:const|let|var) (?P<list>))",
    re.MULTILINE,
)
# A string, a comment, an arrow or a single character.
_PIECES = re.compile(
    r"""'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|/\*[\s\S]*?\*/|//.*|=>|[\s\S]"""
)
_DECLARATOR = re.compile(r"(?:^|,)\s*([A-Za-z_$][\w$]*)\s*(?==|$|;|,)")
_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "(?P<file>\.[\w./]+)";\n', re.MULTILINE)
_OTHER_IMPORT = re.compile(r"^import\b.*", re.MULTILINE)


def imported(text: str) -> list[str]:
    """Return the files that a file imports, as it names them: relative to itself.

    Raises ValueError at an import of another form, which could not be left out.
    """
    for match in _IMPORT.finditer(text):
        if " as " in match["names"]:
            raise ValueError(f"{match[0].strip()}: import a name as it is, without 'as'")
    if other := _OTHER_IMPORT.search(_IMPORT.sub("", text)):
        raise ValueError(f'{other[0]}: write import {{ name }} from "./file.js";')
    return [one["file"] for one in _IMPORT.finditer(text)]


def without_imports(text: str) -> str:
    """Return a file's text without its imports."""
    return _IMPORT.sub("", text)


def declared(text: str) -> list[str]:
    """Return the names that a file declares at its top level, in order.

    Only lines that begin with the declaration count, as in our own files.
    """
    names: list[str] = []
    for line in _DECLARES.finditer(text):
        names += [line["name"]] if line["name"] else _declared_in(text[line.end() :])
    return names


def _declared_in(text: str) -> list[str]:
    """Return the names of ``a = 1, b = [2, 3];``: each begins the statement, or follows a comma
    that lies in no bracket and no string. It ends with the semicolon.
    """
    depth, bare = 0, ""
    for match in _PIECES.finditer(text):
        piece = match[0]
        if piece == ";" and depth == 0:
            break
        depth += (piece in "([{") - (piece in ")]}")
        bare += piece if depth == 0 and len(piece) == 1 else " "
    return _DECLARATOR.findall(bare)


def clashes(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return names that more than one file declares at its top level, with these files."""
    files: dict[str, list[str]] = {}
    for file, text in texts.items():
        for name in declared(text):
            files.setdefault(name, []).append(file)
    return {name: many for name, many in files.items() if len(many) > 1}
