"""``workbench serve`` as a process: it answers, knows who may come in, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, build_opener

import pytest
from typer.testing import CliRunner

from tests.conftest import processes, remains
from tests.live import ROOT
from workbench.app.door import read_keys, within
from workbench.app.serving import Options, greeting, origins
from workbench.cli import app as cli
from workbench.errors import SpecError

KEYS = "ann:s3:cret"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Served:
    """A server that answers, and what it prints."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Start servers; each is ended, by SIGINT as a user does, when the module's tests are over."""
    started: list[Served] = []

    def start(*options: str, host: str = "127.0.0.1") -> Served:
        port = free_port()
        log = tmp_path_factory.mktemp("serve") / "log"
        command = [
            sys.executable, "-m", "workbench.cli", "serve", f"--port={port}", f"--host={host}",
            *options,
        ]  # fmt: skip
        env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
        served = Served(process, port, log)
        started.append(served)
        deadline = time.monotonic() + 60
        while "http://" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        return served

    yield start
    for served in started:
        end(served)


def end(served: Served) -> int:
    if served.process.poll() is None:
        served.process.send_signal(signal.SIGINT)
    try:
        return served.process.wait(20)
    except subprocess.TimeoutExpired:
        served.process.kill()
        raise


@pytest.fixture(scope="module")
def plain(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture(scope="module")
def locked(serve: Callable[..., Served]) -> Served:
    return serve("--basic-auth", KEYS)


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class Reader:
    """A browser without a screen: cookies, and answers as they are."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self.opener = build_opener(HTTPCookieProcessor(self.jar), _Stay())

    def __call__(
        self, url: str, data: dict[str, str] | None = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        body = urllib.parse.urlencode(data).encode() if data is not None else None
        request = urllib.request.Request(url, body, headers)
        try:
            answer = self.opener.open(request, timeout=20)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read().decode(errors="replace"), dict(answer.headers)


def websocket(served: Served, origin: str, reader: Reader, page: str = "/") -> int:
    """The status with which a websocket of that origin is answered: 101 opens it."""
    _, text, _ = reader(served.url + page)
    found = re.search(r'"token":"([^"]+)"', text)
    token = found[1] if found else "none"
    headers = {
        "Host": f"127.0.0.1:{served.port}", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": f"bokeh, {token}", "Origin": origin,
        "Cookie": "; ".join(f"{c.name}={c.value}" for c in reader.jar),
    }  # fmt: skip
    lines = [f"GET {page.rstrip('/')}/ws HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(line.recv(4096).split()[1])


def test_it_answers_as_root_without_a_display_and_starts_no_rank(plain: Served) -> None:
    status, text, _ = Reader()(plain.url + "/")
    assert status == 200 and "See distributed training happen" in text
    said = plain.log.read_text()
    assert f"The web app is at {plain.url}/" in said
    assert "16 ranks, 4 GB and 30 minutes; 4 runs at a time" in said
    assert "WARNING" not in said


@pytest.mark.parametrize("page", ["/", "/run?id=none", "/watch?id=none"])
def test_no_page_names_another_machine(plain: Served, page: str) -> None:
    """The browser's test sees every request; this one reads the text."""
    status, text, _ = Reader()(plain.url + page)
    assert status == 200
    linked = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?(\w+://[^"\')\s]+|//[^"\')\s]+)', text)
    assert linked == []


def test_websockets_of_foreign_pages_are_refused(plain: Served) -> None:
    reader = Reader()
    for own in (plain.url, f"http://localhost:{plain.port}"):
        assert websocket(plain, own, reader) == 101
    for foreign in ("http://evil.example", f"http://evil.example:{plain.port}",
                    f"http://127.0.0.1:{plain.port + 1}", "null"):  # fmt: skip
        assert websocket(plain, foreign, reader) == 403, foreign


def test_a_browser_is_known_again_and_by_no_script(plain: Served) -> None:
    reader = Reader()
    _, _, headers = reader(plain.url + "/")
    assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Lax" in headers["Set-Cookie"]
    (first,) = [cookie.value for cookie in reader.jar]
    _, _, headers = reader(plain.url + "/run?id=none")
    assert "Set-Cookie" not in headers
    other = Reader()
    other(plain.url + "/")
    assert [cookie.value for cookie in other.jar] != [first]


def test_a_run_that_is_not_there_is_said_not_to_be(plain: Served) -> None:
    status, text, _ = Reader()(plain.url + "/run?id=<script>alert(1)</script>")
    assert status == 200 and "There is no such run here" in text and "alert(1)</script>" not in text
    assert Reader()(plain.url + "/replay?id=none")[0] == 404


def test_a_login_page_of_our_own_stands_before_everything(locked: Served) -> None:
    reader = Reader()
    for page in ("/", "/run?id=x", "/watch?id=x", "/replay?id=x"):
        status, text, headers = reader(locked.url + page)
        assert status == 302 and text == "" and "/login?next=" in headers["Location"], page
    status, text, _ = reader(locked.url + "/login?next=%2Frun%3Fid%3Dx")
    assert status == 200 and "Password" in text
    assert "://" not in text and 'src="' not in text, "it asks nobody for anything"
    assert websocket(locked, locked.url, reader) == 403

    status, text, _ = reader(locked.url + "/login", {"user": "ann", "password": "wrong"})
    assert status == 403 and "This user and password are not known here." in text
    status, text, _ = reader(locked.url + "/login", {"user": '"><b>', "password": ""})
    assert status == 403 and '"><b>' not in text
    assert reader(locked.url + "/")[0] == 302

    status, _, headers = reader(
        locked.url + "/login?next=%2Frun%3Fid%3Dx", {"user": "ann", "password": "s3:cret"}
    )
    assert (status, headers["Location"]) == (302, "/run?id=x")
    assert reader(locked.url + "/")[0] == 200
    assert websocket(locked, locked.url, reader) == 101
    assert websocket(locked, "http://evil.example", reader) == 403

    reader(locked.url + "/logout")
    assert reader(locked.url + "/")[0] == 302


def test_a_forged_login_is_none(locked: Served) -> None:
    cookie = f"workbench_user_{locked.port}=ann"
    assert Reader()(locked.url + "/", Cookie=cookie)[0] == 302


def test_it_warns_where_others_can_reach_it_and_interrupted_it_leaves_nothing(
    serve: Callable[..., Served],
) -> None:
    served = serve(host="0.0.0.0")
    said = served.log.read_text()
    assert "WARNING: whoever reaches this address can start processes" in said
    assert "--basic-auth" in said

    def ranks() -> set[int]:
        found = processes()
        nurseries = {pid for pid, (parent, _) in found.items() if parent == served.process.pid}
        return {pid for pid, (parent, _) in found.items() if parent in nurseries} | nurseries

    assert not remains(lambda: len(ranks()) < 5, 60), "the pool of four gets ready"
    pool = ranks()
    assert end(served) == 0
    assert not remains(lambda: pool & set(processes()))
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what it served just now lingers
        s.bind(("127.0.0.1", served.port))
    assert "Traceback" not in served.log.read_text()


def test_a_port_that_is_taken_is_said_to_be(plain: Served) -> None:
    done = CliRunner().invoke(cli, ["serve", f"--port={plain.port}"])
    assert done.exit_code == 1
    assert f"127.0.0.1:{plain.port} is taken by another program" in done.stderr
    assert isinstance(done.exception, SystemExit), "no traceback"


# ---- its words


def test_greeting() -> None:
    at_home = greeting(Options(port=5006))
    assert at_home.startswith("The web app is at http://127.0.0.1:5006/") and "WARN" not in at_home
    assert "WARNING" in greeting(Options(host="0.0.0.0"))
    locked = greeting(Options(host="0.0.0.0", keys={"ann": "x"}))
    assert "WARNING" not in locked and "unencrypted" in locked


def test_origins() -> None:
    assert origins(Options(port=7)) == ["127.0.0.1:7", "localhost:7"]
    assert "[::1]:7" in origins(Options(port=7, host="::1"))
    assert "lab.example:443" in origins(Options(origins=("lab.example:443",)))
    everywhere = origins(Options(port=7, host="0.0.0.0"))
    assert f"{socket.gethostname()}:7" in everywhere and "0.0.0.0:7" not in everywhere
    assert not any("*" in origin for origin in everywhere)


def test_keys(tmp_path: Path) -> None:
    assert read_keys(KEYS) == {"ann": "s3:cret"}
    lines, data = tmp_path / "lines", tmp_path / "keys.json"
    lines.write_text("ann:one\n\nbob:two:three\n")
    data.write_text(json.dumps({"ann": "one"}))
    assert read_keys(str(lines)) == {"ann": "one", "bob": "two:three"}
    assert read_keys(str(data)) == {"ann": "one"}
    for bad in ("ann", "ann:", ":word", "{}", "[1]", '{"ann": 1}', ""):
        with pytest.raises(SpecError, match="USER:PASSWORD"):
            read_keys(bad)


@pytest.mark.parametrize(
    "address", ["//evil.example", "http://evil.example", "/\\evil.example", "run", "", "/\r\nX: y"]
)
def test_a_login_leads_nowhere_else(address: str) -> None:
    assert within(address) == "/"
    assert within("/run?id=x") == "/run?id=x"
