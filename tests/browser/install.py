"""``python -m tests.browser.install``: see to it that there is a Chromium, as ``make test`` does.

In this order: the one that WORKBENCH_CHROMIUM names, the system's, the one that Playwright has
downloaded, one that it downloads now, one that apt-get installs (as root, or by sudo where that
asks for no password). Wherever it comes from, a headless shell before a whole browser: the same
pages for half of the processor time. One counts that has drawn an empty page: what stands under its
name may be an advertisement for a snap, or a browser whose libraries are missing. Prints its path;
without one it ends with 1 and says what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SHELL = "chromium-headless-shell"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Where Playwright puts its shell and its whole browser: "linux", and "linux64" since version 1.57.
OWN_SHELL = "chromium_headless_shell-*/chrome-*linux*/*headless[-_]shell"
OWN = "chromium-*/chrome-linux*/chrome"
HELP = (
    f"the browser tests need Chromium: install it (Debian: apt-get install {SHELL}), or name "
    "one in WORKBENCH_CHROMIUM"
)
EMPTY_PAGE = ("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "about:blank")
SOON = 60.0  # seconds for an empty page, which takes one
DOWNLOAD = 600.0  # seconds for some 200 MB


def find() -> str | None:
    """Return the path of a Chromium that works; None where there is none."""
    return next(filter(draws, candidates()), None)


def candidates() -> Iterator[str]:
    """Yield the paths of browsers that are there, the preferred one first."""
    if named := os.environ.get("WORKBENCH_CHROMIUM"):
        yield named
        return
    place = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache/ms-playwright")
    for names, own in (((SHELL,), OWN_SHELL), (NAMES, OWN)):
        yield from filter(None, map(shutil.which, names))
        yield from map(str, sorted(place.glob(own), reverse=True))


def draws(path: str) -> bool:
    """Tell whether this browser starts and loads an empty page."""
    try:
        done = subprocess.run(
            [path, *EMPTY_PAGE], capture_output=True, text=True, timeout=SOON, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "<body>" in done.stdout


def install() -> str | None:
    """Return the path of a Chromium that works; get one where there is none."""
    for way in ((), *ways()):
        if way:
            print(f"no Chromium that starts is here; trying: {' '.join(way)}", file=sys.stderr)
            run(way)
        if path := find():
            return path
        if os.environ.get("WORKBENCH_CHROMIUM"):  # what was asked for, or nothing
            return None
    return None


def ways() -> Iterator[tuple[str, ...]]:
    """Yield the commands that may bring one, in the order in which to try them."""
    playwright = (sys.executable, "-m", "playwright")
    yield (*playwright, "install", "--only-shell", "chromium")
    apt = shutil.which("apt-get")
    root = () if os.geteuid() == 0 else (shutil.which("sudo") or "", "-n")
    if apt and (not root or (root[0] and run((*root, "true")))):
        yield (*root, apt, "update", "-qq")
        yield (*root, apt, "install", "-y", "-qq", SHELL)
        yield (*root, apt, "install", "-y", "-qq", "chromium")


def run(command: tuple[str, ...]) -> bool:
    """Run a command; tell whether it succeeded. What it prints goes to standard error."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, stdout=sys.stderr, env=env, timeout=DOWNLOAD, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return False
    return done.returncode == 0


if __name__ == "__main__":
    if browser := install():
        print(browser)
    else:
        sys.exit(f"no Chromium that starts: {HELP}")
