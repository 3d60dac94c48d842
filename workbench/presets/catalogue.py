"""Experiments to begin with: each starts as it is, and says what to look for; and comparisons.

presets()["A straggler"].experiment       for a form, or wb.run
comparisons()["Four ways to wait"].make() name -> experiment, for wb.compare

They stand in the files of presets/, ours and the user's own (extensions.py). A file has

    GROUP, ORDER     under which name its presets stand, and where among the others
    presets()        a list of (name, a line of words on what to look for, make -> Experiment)
    comparisons()    a list of (name, the question in a line, make -> {name: Experiment}); or none
    MEASURES         name of a comparison -> the measures that decide it; others: time per step
    SCENES           name -> the scene in which the question is seen, "" all others; without it that
                     of the strategy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

from workbench.common import extensions
from workbench.common.errors import SpecError, short
from workbench.common.names import listed, nearest
from workbench.experiment.spec import Experiment

USUAL = ("step_ms",)  # what decides a comparison whose file names no measure


@dataclass(frozen=True)
class Preset:
    """A name, one line of words on what to look for, and what it runs."""

    name: str
    words: str
    make: Callable[[], Experiment]
    group: str = "Averaged gradients"  # its heading in a long list
    scene: str = ""  # that shows the answer; "": the strategy's own

    @cached_property
    def experiment(self) -> Experiment:
        """Made when asked for: to check a strategy's options takes importing torch."""
        return self.make()

    def facts(self) -> dict[str, str]:
        """Return what a run of it keeps: the question above its picture, and its first scene."""
        return {"question": self.words} | ({"scene": self.scene} if self.scene else {})


@dataclass(frozen=True)
class Compared:
    """A name, one line of words on the question, and the experiments that answer it."""

    name: str
    words: str
    make: Callable[[], Mapping[str, Experiment]]
    group: str = "Averaged gradients"
    measures: tuple[str, ...] = USUAL  # that decide it: see analysis/verdict.py

    def facts(self) -> dict[str, str]:
        """Return what each of its runs keeps: the question, which is shown above the picture."""
        return {"question": self.words}

    @property
    def code(self) -> str:
        """Python that runs it and shows what came of it."""
        return (
            "import workbench as wb\n"
            "from workbench.presets.catalogue import comparisons\n\n"
            f"found = wb.compare(comparisons()[{self.name!r}].make()).wait()\n"
            f"print(found.verdict({', '.join(map(repr, self.measures))}))\n"
            "print(found.table)\n"
        )


def presets() -> dict[str, Preset]:
    """Return them by name, the one to begin with first."""
    return {
        name: Preset(name, words, make, file.GROUP, _scene(file, name))
        for file in _files()
        for name, words, make in file.presets()
    }


def named(name: str) -> Preset:
    """Return the preset of a name: without regard to case, spaces and punctuation, and a part of
    the name is enough where no other has it. Raises SpecError, with all names.
    """
    known = presets()
    by_letters = {_letters(one): one for one in known}
    word = _letters(name)
    having = [one for letters, one in by_letters.items() if word and word in letters]
    if word in by_letters or len(having) == 1:
        return known[by_letters.get(word) or having[0]]
    near = f" (did you mean {' or '.join(map(repr, having))}?)" if having else nearest(name, known)
    raise SpecError(
        f"there is no preset {short(name)}{near}. workbench presets says what each shows. They "
        f"are: {listed(map(repr, known))}"
    )


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _scene(file: ModuleType, name: str) -> str:
    scenes: Mapping[str, str] = getattr(file, "SCENES", {})
    return scenes.get(name, scenes.get("", ""))


def note(metadata: dict[str, str], name: str, exp: Experiment) -> None:
    """Keep with a run what its preset says of it, if it is a run of the preset of this name."""
    preset = presets().get(name)
    if preset is not None and preset.experiment == exp:
        metadata |= preset.facts()


def comparisons() -> dict[str, Compared]:
    """Return them by name. ``wb.compare(comparisons()[name].make(), seeds=5)`` runs one."""
    files = [file for file in _files() if hasattr(file, "comparisons")]
    return {
        name: Compared(name, words, make, file.GROUP, _measures(file, name))
        for file in files
        for name, words, make in file.comparisons()
    }


def _measures(file: ModuleType, name: str) -> tuple[str, ...]:
    decides: Mapping[str, tuple[str, ...]] = getattr(file, "MEASURES", {})
    return decides.get(name, USUAL)


def _files() -> list[ModuleType]:
    """Return the modules with presets, in their order."""
    modules = [extensions.load("presets", stem) for stem in extensions.files("presets")]
    return sorted(
        (one for one in modules if hasattr(one, "presets") and hasattr(one, "GROUP")),
        key=lambda one: (one.ORDER, one.__name__),
    )
