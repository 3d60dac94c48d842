"""Register the backend once torch is there, without importing torch for programs that do not need
it.

``import workbench`` does without torch, so that a run's processes can start while the driver itself
still imports it. If torch comes later, the backend is registered at the end of its import: by torch
itself (_autoload.py), or here, if the package is not installed or torch is set to load no backends
(TORCH_DEVICE_BACKEND_AUTOLOAD=0). The code that makes a group is imported with the first group: a
module of ours may be what imports torch, and would be half imported then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def register_backend() -> None:
    """Make "workbench" known to torch.distributed: now, or when torch is imported."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch())
        return
    try:
        from workbench._autoload import register
    except ModuleNotFoundError:  # a wheel has that module beside the package alone
        from _workbench_autoload import register  # type: ignore[import-untyped,import-not-found,no-redef,unused-ignore]
    register()


def create(*options: Any) -> Any:
    """Return a process group: asked for here by the copy of _autoload.py that an older version has
    installed.
    """
    from workbench.process_group.entry import create as make

    return make(*options)


class _AfterTorch(MetaPathFinder):
    """Stays until torch is imported: others look for it too, only to know whether it is there."""

    _looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch" or self._looking:
            return None
        self._looking = True  # the search below must not find us again
        try:
            spec = find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self)
        return spec


class _Then(Loader):
    def __init__(self, loader: Loader, finder: MetaPathFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._loader.exec_module(module)
        register_backend()
