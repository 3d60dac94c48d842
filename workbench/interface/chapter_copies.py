"""The reader's own copies of the chapters: without outputs, so that a guess comes before a result.

    bring(chapters, folder)

What a reader wrote is never overwritten. ``folder`` keeps, in KEPT, a digest of each text that was
brought there. A copy whose text is still that one is replaced when the chapter has a new text; one
that the reader has edited stays, and the chapter's new text lies beside it, as "06_... new.ipynb".
Outputs are not text: a copy that was run and not edited counts as not edited.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workbench.common.errors import WorkbenchError
from workbench.common.output_files import write_text

KEPT = ".chapters.json"
WHAT = "The copies of the chapters"


def bring(chapters: Path, folder: Path) -> list[Path]:
    """Copy the notebooks of ``chapters`` to ``folder``, as far as the reader has none of his own;
    return the copies that were written.

    Raises WorkbenchError if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkbenchError(f"{WHAT}: cannot make the folder {folder}: {error}") from error
    known = _known(folder / KEPT)
    written = []
    for path in sorted(chapters.glob("[0-9][0-9]*.ipynb")):
        notebook = cleared(json.loads(path.read_text(encoding="utf-8")))
        new = digest(notebook)
        for target in _places(folder / path.name):
            there = _digest_of(target)
            if target.exists() and (there is None or there not in (known.get(target.name), new)):
                continue  # the reader's: another text than was brought, or no notebook
            if there != new:
                text = json.dumps(notebook, indent=1, ensure_ascii=False)
                write_text(target, WHAT, text + "\n")
                written.append(target)
            known[target.name] = new
            break
    write_text(folder / KEPT, WHAT, json.dumps(known, indent=1) + "\n")
    return written


def cleared(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook without what its cells have shown; folded code stays folded."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    notebook["metadata"].pop("workbench", None)  # what the outputs were made of
    return notebook


def digest(notebook: dict[str, Any]) -> str:
    """Return a digest of the text of all cells."""
    texts = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _places(path: Path) -> Iterator[Path]:
    """Yield where a chapter can lie: under its own name, or beside it, where no file is."""
    yield path
    yield path.with_stem(f"{path.stem} new")
    number = 2
    while True:
        yield path.with_stem(f"{path.stem} new {number}")
        number += 1


def _digest_of(path: Path) -> str | None:
    """Return the digest of the notebook at ``path``; None if there is none."""
    try:
        return digest(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _known(path: Path) -> dict[str, str]:
    """Return what was brought so far. Where the file is damaged nothing is known, and every copy
    counts as the reader's.
    """
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(one) for name, one in known.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def trust(copies: Iterable[Path]) -> None:
    """Sign copies of the workbench's own chapters as they are on disk.

    A user who opens them this way runs our code anyway; without it Jupyter leaves out interactive
    pictures.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    notary: Any = NotebookNotary()  # type: ignore[no-untyped-call]
    for file in copies:
        notary.sign(nbformat.read(file, as_version=4))  # type: ignore[no-untyped-call]
