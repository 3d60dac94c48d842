"""For tests of code that travels: files of the user's own, imported as a script's neighbor is."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

Module = Callable[..., ModuleType]


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Module]:
    """Write a file of the user's own and import it, as a script's neighbor is imported."""
    names: list[str] = []

    def make(text: str, name: str = "users_own") -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec and spec.loader
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        names.append(name)
        spec.loader.exec_module(loaded)
        return loaded

    yield make
    for name in names:
        sys.modules.pop(name, None)
