"""The browser that tests need: the one that is there, else one that is brought, else a sentence."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import install
from tests.live import ROOT

NOWHERE = "http://127.0.0.1:9"  # no server listens there


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a browser, a network and a package manager."""
    (tmp_path / "bin").mkdir()
    return {
        **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
        "PATH": f"{tmp_path / 'bin'}",
        "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "browsers"),
        "PLAYWRIGHT_DOWNLOAD_HOST": NOWHERE,
        "PYTHONPATH": str(ROOT),
    }


def installed(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the installer with this environment and nothing else."""
    return subprocess.run(
        [sys.executable, "-m", "tests.browser.install"],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )


def program(path: Path, text: str) -> Path:
    """Write a program of the shell, which finds the real ones by their full names."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def mirror(chromium: str, tmp_path: Path) -> Iterator[str]:
    """The address of a server that gives this machine's browser for whatever is asked."""
    archive = tmp_path / "browser.zip"
    with zipfile.ZipFile(archive, "w") as file:
        entry = zipfile.ZipInfo("chrome-headless-shell-linux64/chrome-headless-shell")
        entry.external_attr = 0o755 << 16
        file.writestr(entry, f'#!/bin/sh\nPATH=/usr/bin:/bin exec {chromium} "$@"\n')

    class Archive(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(archive.stat().st_size))
            self.end_headers()
            self.wfile.write(archive.read_bytes())

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "shell",
    [
        "bin/chromium-headless-shell",
        "browsers/chromium_headless_shell-1255/chrome-headless-shell-linux64/chrome-headless-shell",
        "browsers/chromium_headless_shell-1194/chrome-linux/headless_shell",
    ],
)
def test_the_one_that_is_there_is_taken_a_headless_shell_first(
    bare: dict[str, str], chromium: str, tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = f'PATH=/usr/bin:/bin exec {chromium} "$@"'
    whole = program(tmp_path / "bin" / "google-chrome", works)
    for name in ("PATH", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.setenv(name, bare[name])
    monkeypatch.delenv("WORKBENCH_CHROMIUM", raising=False)
    assert install.find() == str(whole)
    (tmp_path / shell).parent.mkdir(parents=True, exist_ok=True)
    first = program(tmp_path / shell, works)
    done = installed(bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{first}\n", "")


@pytest.mark.full
def test_without_one_playwright_downloads_its_own(bare: dict[str, str], mirror: str) -> None:
    """A name on PATH that starts nothing, as Ubuntu's, is none."""
    program(Path(bare["PATH"], "chromium-browser"), "echo install the snap >&2; exit 1")
    done = installed({**bare, "PLAYWRIGHT_DOWNLOAD_HOST": mirror})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(bare["PLAYWRIGHT_BROWSERS_PATH"])


@pytest.mark.full
def test_without_a_download_the_package_manager_installs_one(
    bare: dict[str, str], chromium: str, tmp_path: Path
) -> None:
    folder = bare["PATH"]
    program(
        Path(folder, "apt-get"),
        f'echo "$@" >> {tmp_path}/orders\n[ $1 = update ] || {{\n'
        f"  [ $4 = chromium ] || exit 100\n"
        f"  printf '#!/bin/sh\\nPATH=/usr/bin:/bin exec {chromium} \"$@\"\\n' > {folder}/chromium\n"
        f"  /bin/chmod 755 {folder}/chromium\n}}",
    )
    program(Path(folder, "sudo"), '[ "$1" = -n ] && shift && exec "$@"')
    program(Path(folder, "true"), "exit 0")
    done = installed(bare)
    assert (done.returncode, done.stdout) == (0, f"{folder}/chromium\n"), done.stderr
    orders = (tmp_path / "orders").read_text().splitlines()
    assert orders == [
        "update -qq",
        "install -y -qq chromium-headless-shell",  # which not every release has
        "install -y -qq chromium",
    ]


@pytest.mark.full
def test_where_none_can_be_had_one_sentence_says_what_to_do(bare: dict[str, str]) -> None:
    done = installed(bare)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(
        "no Chromium that starts: the browser tests need"
    )


def test_one_that_is_named_and_does_not_start_is_not_replaced(bare: dict[str, str]) -> None:
    program(Path(bare["PATH"], "mine"), "exit 1")
    done = installed({**bare, "WORKBENCH_CHROMIUM": f"{bare['PATH']}/mine"})
    assert done.returncode == 1 and "WORKBENCH_CHROMIUM" in done.stderr


def test_a_test_that_needs_it_fails_where_there_is_none(bare: dict[str, str]) -> None:
    """Fails, and is not skipped."""
    test = "tests/browser/test_replay_page.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env=bare,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 1 and " passed" not in done.stdout and "skipped" not in done.stdout
    assert "there is no Chromium: the browser tests need" in done.stdout
