"""All exercises, found by listing the folder ``exercises/``: ours, and the user's own."""

from __future__ import annotations

from workbench.common import extensions
from workbench.common.arguments import Text, checked
from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest
from workbench.exercises.exercise import Exercise


def exercises() -> dict[str, Exercise]:
    """Return every exercise by its name, in the order of the chapters."""
    by_name: dict[str, Exercise] = {}
    for stem in extensions.files("exercises"):
        for one in getattr(extensions.load("exercises", stem), "EXERCISES", ()):
            by_name.setdefault(one.name, one)
    return dict(sorted(by_name.items(), key=lambda pair: _order(pair[0])))


@checked
def exercise(name: Text) -> Exercise:
    """Return the exercise ``name``, such as "01.2": it displays its task, its difficulty, the
    minutes that it takes, and folded a hint and a solution. Raises SpecError if there is none.

    >>> wb.exercise("01.2")
    """
    known = exercises()
    if name not in known:
        raise SpecError(
            f"wb.exercise: name = {name!r}: there is no such exercise"
            f"{nearest(name, known)}. Allowed: {listed(known)}"
        )
    return known[name]


def _order(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else 10**6, part) for part in name.split(".")]
