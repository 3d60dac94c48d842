"""The front end's modules, read from their text and joined into one.

It reads the subset of JavaScript that ours are written in.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

_DECLARES = re.compile(
    r"^(?P<export>export )?(?:(?:async )?(?:function\*?|class) (?P<name>[\w$]+)"
    r"|(?:const|let|var) (?P<list>))",
    re.MULTILINE,
)
# Characters without a meaning here, a string, a comment, an arrow or a single character.
_PIECES = re.compile(
    r"""(?P<plain>[^'"`/=;()[\]{}]+)"""
    r"""|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|/\*[\s\S]*?\*/|//.*|=>|[\s\S]"""
)
_DECLARATOR = re.compile(r"(?:^|,)\s*([A-Za-z_$][\w$]*)\s*(?==|$|;|,)")
_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "(?P<file>\.[\w./]+)";\n', re.MULTILINE)
_OTHER_IMPORT = re.compile(r"^import\b.*", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_DEFAULT_EXPORT = re.compile(r"^export default ", re.MULTILINE)
_OTHER_EXPORT = re.compile(
    r"^export (?:let|var|\{|\*|default (?:async |function|class )).*", re.MULTILINE
)
DEFAULT = "$default"  # what a module's default export is called in the joined one


@dataclass(frozen=True)
class Import:
    """An import: the other file, as the text names it, and own name -> name there."""

    file: str
    names: Mapping[str, str]


def imports(text: str) -> list[Import]:
    """Return what a file imports, each from a file as it names it: relative to itself.

    Raises ValueError at an import of another form.
    """
    if other := _OTHER_IMPORT.search(_IMPORT.sub("", text)):
        raise ValueError(f'{other[0]}: write import {{ name }} from "./file.js";')
    return [Import(one["file"], _names(one["names"])) for one in _IMPORT.finditer(text)]


def _names(listed: str) -> dict[str, str]:
    """Return own name -> name there, of ``a, b as c``."""
    pairs = [one.split(" as ") for one in listed.split(",") if one.strip()]
    return {pair[-1].strip(): pair[0].strip() for pair in pairs}


def declared(text: str, *, exported: bool = False) -> list[str]:
    """Return the names that a file declares at its top level, in order; ``exported``: of these only
    the ones that it exports.

    Only lines that begin with the declaration count, as in our own files.
    """
    names: list[str] = []
    for line in _DECLARES.finditer(text):
        if line["export"] or not exported:
            names += [line["name"]] if line["name"] else _declared_in(text, line.end())
    return names


def _declared_in(text: str, at: int) -> list[str]:
    """Return the names of ``a = 1, b = [2, 3];``, which begins ``at``: each begins the statement,
    or follows a comma that lies in no bracket and no string. It ends with the semicolon.
    """
    depth, bare = 0, ""
    for match in _PIECES.finditer(text, at):
        piece = match[0]
        if piece == ";" and depth == 0:
            break
        depth += (piece in "([{") - (piece in ")]}")
        bare += piece if depth == 0 and (match["plain"] or len(piece) == 1) else " "
    return _DECLARATOR.findall(bare)


# ---- several as one
#
# A host imports one module that has nothing beside it (anywidget's comes from a Blob URL). So each
# file becomes a function that is called at once and returns what the file exports; the files follow
# each other, each after those that it imports. A name need be unique in its file only.


def needed(entries: Iterable[str], read: Callable[[str], str]) -> dict[str, str]:
    """Return the texts of ``entries`` and of every file that they need, by their names, each after
    those that it imports. Raises ImportError where they could not be joined.
    """
    texts: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join((*path, name))
            raise ImportError(f"assets import each other in a circle: {circle}")
        if name not in texts:
            text = read(name)
            for one in _checked(name, text):
                visit(_beside(name, one.file), (*path, name))
            texts[name] = text

    for entry in entries:
        visit(entry, ())
    return texts


def _beside(name: str, file: str) -> str:
    """Return the name of a file that the file ``name`` imports."""
    return posixpath.normpath(posixpath.join(name, "..", file))


def _checked(name: str, text: str) -> list[Import]:
    """Return what a file imports. Raises ImportError, which names it, where a browser would refuse
    the joined module without a visible error.
    """
    try:
        own_imports = imports(text)
    except ValueError as error:
        raise ImportError(f"{name}: {error}") from None
    if other := _OTHER_EXPORT.search(text):
        raise ImportError(f"{name}: {other[0]}: export a constant, function or class at its place")
    names = [*(own for one in own_imports for own in one.names), *declared(text)]
    if twice := sorted({own for own in names if names.count(own) > 1}):
        raise ImportError(f"{name} declares {twice[0]} twice; rename one")
    return own_imports


def bundle(
    texts: Mapping[str, str],
    entries: Collection[str],
    alike: Callable[[str, str], str] | None = None,
) -> Bundle:
    """Join files, each after those that it imports (``needed``). ``entries``: of these all exports
    are kept. ``alike``: makes of a file's name and its text one with the same meaning.

    Raises ImportError if a file imports what another does not export.
    """
    ids = {name: f"${i}" for i, name in enumerate(texts)}
    offers = {name: declared(text, exported=True) for name, text in texts.items()}
    links: dict[str, list[tuple[str, Mapping[str, str]]]] = {name: [] for name in texts}
    taken: dict[str, set[str]] = {name: set() for name in texts}  # by other files
    for name, text in texts.items():
        for one in imports(text):
            other = _beside(name, one.file)
            if missing := sorted({*one.names.values()} - {*offers[other]}):
                raise ImportError(f"{name} imports {missing[0]}, which {other} does not export")
            links[name].append((ids[other], one.names))
            taken[other] |= {*one.names.values()}
    parts = []
    for name, text in texts.items():
        if _DEFAULT_EXPORT.search(text):
            offers[name].append(DEFAULT)
        head = "".join(f"const{{{_bound(names)}}}={other};\n" for other, names in links[name])
        body = _EXPORT.sub("", _DEFAULT_EXPORT.sub(f"const {DEFAULT} = ", _IMPORT.sub("", text)))
        end = [one for one in offers[name] if name in entries or one in taken[name]]
        inside = head + (alike(name, body) if alike else body)
        parts.append(f"const {ids[name]}=(()=>{{\n{inside}return{{{','.join(end)}}}}})();\n")
    return Bundle("".join(parts), ids, offers)


def _bound(names: Mapping[str, str]) -> str:
    return ",".join(own if own == there else f"{there}:{own}" for own, there in names.items())


@dataclass(frozen=True)
class Bundle:
    """Joined files: their text; by file, what its exports are called in it, and which they are."""

    text: str
    ids: Mapping[str, str]
    offers: Mapping[str, list[str]]

    def exporting(self, entry: str) -> str:
        """Return the ES module that exports what ``entry`` does, one of the entries."""
        names = [name for name in self.offers[entry] if name != DEFAULT]
        end = f"export const{{{','.join(names)}}}={self.ids[entry]};\n" if names else ""
        if DEFAULT in self.offers[entry]:
            end += f"export default {self.ids[entry]}.{DEFAULT};\n"
        return self.text + end
