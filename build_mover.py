"""The build hook of the wheel, and of ``pip install -e .``: it compiles the mover.

Without a compiler the wheel has none, and Python does its work. With ``WORKBENCH_ZIG=1`` pip brings
one for the build, the package ``ziglang``; ``make`` asks for it, a plain ``pip install`` does not.
``WORKBENCH_WHEEL=aarch64`` makes a wheel for that processor, whatever this one is; ``make wheels``
makes all.
"""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang>=0.13"
IN_WHEEL = "workbench/native/_mover.abi3.so"


class MoverHook(BuildHookInterface[Any]):
    """Compiles the sources of workbench/native: in place if the install is editable, else into the
    wheel.
    """

    def _tools(self) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root, "workbench", "native", "build.py")))

    def dependencies(self) -> list[str]:
        """Return what the build needs besides: a compiler, if it is asked for and there is none."""
        if os.environ.get("WORKBENCH_WHEEL"):
            return [ZIG]
        wanted = os.environ.get("WORKBENCH_ZIG") == "1" and not any(self._tools()["compilers"]())
        return [ZIG] if wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what the wheel is for."""
        if self.target_name != "wheel":
            return
        editable = version == "editable"
        processor = os.environ.get("WORKBENCH_WHEEL", "")
        tools = self._tools()
        if processor and processor not in tools["WHEELS"]:
            raise ValueError(
                f"WORKBENCH_WHEEL={processor!r}: it takes {', '.join(tools['WHEELS'])}"
            )
        by = [tools["for_wheel"](processor)] if processor else None
        self._folder = TemporaryDirectory()  # until the wheel is written
        to = Path(self.root, IN_WHEEL) if editable else Path(self._folder.name, "mover.so")
        try:
            self.app.display_info(f"the mover is compiled with {tools['build'](to, by=by)}")
        except RuntimeError as error:
            if processor:
                raise  # a wheel for others has it, or is none
            to.unlink(missing_ok=True)  # rather none than a stale one
            self.app.display_warning(f"no compiled mover: Python does its work, slower. {error}")
            return
        if not editable:
            build_data["force_include"][str(to)] = IN_WHEEL
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            if processor:
                platform = f"manylinux_{tools['GLIBC'].replace('.', '_')}_{processor}"
            build_data["tag"] = f"cp311-abi3-{platform}"
