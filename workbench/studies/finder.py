"""Studies by name: ours are functions of ``wb`` (compare, check, drift, ...), a user's own a file.

study("twice")(experiment)      calls ``study`` of studies/twice.py in a folder of the user's own
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.common import extensions
from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest


def names() -> list[str]:
    """Return the names of the studies that files of the user's own define."""
    ours = extensions.OURS / "studies"
    return [name for name, file in extensions.files("studies").items() if file.parent != ours]


def study(name: str) -> Callable[..., Any]:
    """Return the function ``study`` of the file of that name. Raises SpecError."""
    if name not in names():
        raise SpecError(
            f"there is no study {name!r}{nearest(name, names())}. Allowed: {listed(names())}"
        )
    module = extensions.load("studies", name)
    result: Callable[..., Any] | None = getattr(module, "study", None)
    if result is None:
        raise SpecError(f"{module.__file__} defines no function study, which a study is")
    return result
