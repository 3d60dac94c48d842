"""Register the backend when torch is there, without importing torch for those who do not need it
yet.

``import workbench`` does without torch, so that a run's processes can start while the driver itself
still imports it. If torch comes later, the backend is registered at the end of its import. What
makes a group is imported with the first one: a module of ours may be what imports torch, and would
be met there half done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def register_backend() -> None:
    """Make "workbench" known to torch.distributed: now, or as soon as somebody imports torch."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch())
        return
    import torch.distributed as dist

    if "WORKBENCH" not in dist.Backend._plugins:
        dist.Backend.register_backend(
            "workbench", _create, extended_api=True, devices=["cpu", "cuda"]
        )


def _create(*options: Any) -> Any:
    return _group()._create(*options)


@cache
def _group() -> Any:
    from workbench import process_group
    from workbench.session import last_words

    threading._register_atexit(last_words)  # type: ignore[attr-defined]
    threading._register_atexit(process_group.close_all)  # type: ignore[attr-defined]  # comes first
    return process_group


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
