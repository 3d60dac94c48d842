"""Several threads parse Python at the same time, as sessions of a web app and comparisons do."""

from __future__ import annotations

import ast
import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from workbench.common import syntax

CODE = Path(syntax.__file__).with_name("units.py").read_text()


@pytest.fixture
def giving_way() -> Iterator[None]:
    """Each collection of garbage, which may come while a tree is built, lets another thread run."""

    def give_way(phase: str, facts: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(100)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("giving_way")
@pytest.mark.parametrize("beside", [syntax.parse, ast.parse])
def test_threads_may_parse_at_the_same_time(beside: Callable[[str], ast.Module]) -> None:
    """Also beside one that knows nothing of the lock, and may see the error itself."""
    expected, trees = ast.dump(ast.parse(CODE)), []

    def stranger() -> None:
        with contextlib.suppress(SystemError):
            beside(CODE)

    for _ in range(20):
        own = [Thread(target=lambda: trees.append(syntax.parse(CODE))) for _ in range(3)]
        threads = [*own, Thread(target=stranger)]  # the first to begin is the one that suffers
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(trees) == 60 and all(ast.dump(tree) == expected for tree in trees)


def test_what_is_not_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError) as caught:
        syntax.parse("def f(:", "a cell")
    assert caught.value.filename == "a cell"
