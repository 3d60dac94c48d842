"""``wb.about()`` and ``workbench about``: what runs here, and why."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from workbench import native
from workbench.studies.calibration import summary


@dataclass(frozen=True)
class About:
    """Versions, the machine, what moves messages ("C", or "Python" and why), and how well
    predictions of ``run.what_if`` have done.
    """

    workbench: str
    python: str
    torch: str
    machine: str
    mover: str
    why: str = ""  # the reason for Python's mover; the compiled one needs none
    predictions: str = ""  # how well those that were proven have done on this machine

    def __str__(self) -> str:
        lines = {
            "workbench": self.workbench,
            "Python": self.python,
            "torch": self.torch,
            "machine": self.machine,
            "mover": self.mover + (f": {self.why}" if self.why else ""),
            "predictions": self.predictions,
        }
        return "\n".join(f"{title:<11} {text}" for title, text in lines.items())

    __repr__ = __str__


def about() -> About:
    """Say which versions are here, on what machine, which mover runs, and how well predictions that
    were proven have done.

    A mover moves messages, writes their records and reads them for the driver: the compiled one, in
    C, or Python's, where that was not compiled or ``WORKBENCH_MOVER=python`` is set.
    """
    cores = os.cpu_count() or 1
    return About(
        _version("distributed-training-workbench"),
        platform.python_version(),
        _version("torch"),
        f"{platform.system()} on {platform.machine()}, {cores} core{'s' * (cores > 1)}",
        native.name(),
        native.reason(),
        summary(),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
