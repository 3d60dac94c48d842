"""``python -m tests.image``: the Dockerfile's steps without Docker, and what the image is for.

    python -m tests.image [--arg NAME=VALUE ...]    as root, on a Debian with debootstrap; minutes

The base is a Debian that debootstrap makes in an empty folder; a step runs in it by chroot, with
processes and mounts of its own. pip gets this machine's PIP_ variables, and the folders and files
that they name. Then, as the image's user: the demo, a chapter's first cells, JupyterLab by the
image's own command, Notebook, the web app.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASE = re.compile(r"debian:(\w+)-slim")
PORTS = (8988, 5996)  # of this machine, which may use 8888 and 5006 itself
CELLS = """
import workbench as wb
result = wb.run(wb.Experiment(ranks=2, iterations=20)).wait(timeout=120)
assert result.ok and len(set(result.digests.values())) == 1
from workbench.native import compiled, reason
assert compiled() is not None, reason()
"""


def steps(recipe: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction and its text, with continued lines joined."""
    lines = (line for line in recipe.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, text = line.partition(" ")
            yield name, text.strip()


class Image:
    """A root file system, as far as the steps have come."""

    def __init__(self, folder: Path, arguments: dict[str, str]) -> None:
        self.root, self.arguments = folder, arguments
        self.env: dict[str, str] = {
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
        }
        self.place, self.user, self.command = "/", "root", list[str]()
        self.pip = {name: value for name, value in os.environ.items() if name[:4] == "PIP_"}

    def make(self, recipe: str) -> None:
        """Take every step."""
        for name, text in steps(recipe):
            began = time.monotonic()
            getattr(self, f"_{name.lower()}")(text)
            print(f"{time.monotonic() - began:6.1f} s  {name} {text[:80]}", flush=True)

    def _from(self, text: str) -> None:
        suite = BASE.fullmatch(text)
        assert suite, f"FROM {text}: debootstrap makes debian:SUITE-slim only"
        words = ["debootstrap", "--variant=minbase", suite[1], str(self.root)]
        subprocess.run(
            [*words, "http://deb.debian.org/debian"], check=True, stdout=subprocess.DEVNULL
        )
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        for name, value in self.pip.items():
            if value.startswith("/") and (there := Path(value)).exists():
                self.pip[name] = f"/of-this-machine{value}"
                copy = self.root / self.pip[name][1:]
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(there, copy) if there.is_dir() else shutil.copy(there, copy)

    def _arg(self, text: str) -> None:
        name, _, value = text.partition("=")
        self.env[name] = self.arguments.get(name, shlex.split(value)[0])

    def _env(self, text: str) -> None:
        whole = string.Template(text).safe_substitute(self.env)
        self.env |= dict(one.split("=", 1) for one in shlex.split(whole))

    def _workdir(self, text: str) -> None:
        self.place = text
        (self.root / text[1:]).mkdir(parents=True, exist_ok=True)

    def _copy(self, text: str) -> None:
        assert text == "--chown=learner . .", text
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            target = self.root / self.place[1:] / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self.run(f"chown -R learner {self.place}")

    def _run(self, text: str) -> None:
        self.run(text)

    def _user(self, text: str) -> None:
        self.user = text

    def _expose(self, text: str) -> None:
        pass

    def _cmd(self, text: str) -> None:
        self.command = json.loads(text)

    def run(self, line: str) -> None:
        """Run a shell's line in the image as its user, to its end."""
        done = subprocess.run(
            self._words(line), env=self._environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def answers(self, line: str, address: str, patience: float = 120) -> None:
        """Start what goes on running, and wait until there is an answer at ``address``."""
        serving = subprocess.Popen(
            self._words(line),
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            end = time.monotonic() + patience
            while True:
                assert serving.poll() is None, f"{line}: ended with {serving.returncode}"
                try:
                    with urllib.request.urlopen(address, timeout=5) as answer:
                        assert answer.status == 200, f"{address}: {answer.status}"
                        return
                except OSError:
                    assert time.monotonic() < end, f"{line}: no answer at {address}"
                    time.sleep(0.5)
        finally:
            serving.kill()  # unshare ignores SIGTERM; what it started ends with it (--kill-child)
            serving.wait()

    def _words(self, line: str) -> list[str]:
        user, quoted = self.user, shlex.quote(line)
        mounts = "mount -t proc proc /proc; mount -t tmpfs -o size=1g shm /dev/shm"
        inside = f"{mounts}; cd {self.place}; exec setpriv --reuid={user} --regid={user} "
        inside += f"--init-groups sh -c {quoted}"
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*own, shutil.which("chroot") or "chroot", str(self.root), "sh", "-ec", inside]

    def _environment(self) -> dict[str, str]:
        return self.env | self.pip


def main(*words: str) -> None:
    """Make the image in a temporary folder, and use it."""
    assert os.geteuid() == 0 and shutil.which("debootstrap"), "needs root and debootstrap"
    given = dict(one.split("=", 1) for one in words if one != "--arg")
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        Path(folder).chmod(0o755)  # the image's user passes through it
        image = Image(Path(folder), given)
        image.make((ROOT / "Dockerfile").read_text())
        lab, web = PORTS
        checks = {
            "workbench demo": lambda: image.run("workbench demo && test -s runs/demo.html"),
            "ranks, and the compiled mover": lambda: image.run(
                f"cd notebooks && python -c {shlex.quote(CELLS)}"
            ),
            "the image's command": lambda: image.answers(
                shlex.join(image.command).replace("8888", str(lab)), f"http://127.0.0.1:{lab}/api"
            ),
            "jupyter notebook": lambda: image.answers(
                f"jupyter notebook --no-browser --port={lab}", f"http://127.0.0.1:{lab}/api"
            ),
            "workbench serve": lambda: image.answers(
                f"workbench serve --host 0.0.0.0 --port {web}", f"http://127.0.0.1:{web}/"
            ),
        }
        for name, check in checks.items():
            check()
            print(f"{name}: works", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
