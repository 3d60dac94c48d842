"""Install public programs' packages, as far as they can be had, for `make test-all`.

They go into an environment of their own, which sees ours: this torch stays the one that is used,
and none of them becomes something that the workbench stands on.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

from tests.processes import ROOT

MINUTES = 6
PUBLIC = ROOT / "build" / "public"
PYTHON = PUBLIC / "bin" / "python"
PACKAGES = ["accelerate>=1.10,<2", "transformers>=4.56,<6", "lightning>=2.5,<3"]


def main() -> None:
    try:
        if not PYTHON.exists():
            subprocess.run([sys.executable, "-m", "venv", str(PUBLIC)], timeout=120, check=True)
        words = [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        own = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        ours = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        Path(own, "ours.pth").write_text(ours)
        pinned = PUBLIC / "torch.txt"
        pinned.write_text(f"torch=={version('torch')}\n")
        pip = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", pinned, *PACKAGES], timeout=60 * MINUTES, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"not installed: {error}", file=sys.stderr)


def has(package: str) -> bool:
    """Return whether that environment has the package."""
    return any(PUBLIC.glob(f"lib/python*/site-packages/{package}-*.dist-info"))


if __name__ == "__main__":
    main()
