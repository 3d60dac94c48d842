"""``workbench serve`` as a process: it answers, lets in those who may, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.conftest import processes, remains
from tests.interface.app.served import Line, Reader, Served, end, launch, websocket
from tests.live import until
from workbench.cli import app as cli
from workbench.common.errors import SpecError
from workbench.interface.app.login import read_keys, within
from workbench.interface.app.serving import Options, greeting, origins
from workbench.rank import allocation

KEYS = "ann:s3:cret"
PREPARED = """  # as once a page is open in a browser
from workbench.launchers.processes.pool import warm_pool
warm_pool().keep(4)
"""


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Start servers; each is ended, by SIGINT as a user does, when the module's tests are over."""
    started: list[Served] = []

    def start(*options: str, host: str = "127.0.0.1", first: str = "") -> Served:
        folder = tmp_path_factory.mktemp("serve")
        started.append(launch(folder, "serve", f"--host={host}", *options, first=first))
        return started[-1].until_it_answers()

    yield start
    for served in started:
        end(served)


@pytest.fixture(scope="module")
def plain(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture(scope="module")
def locked(serve: Callable[..., Served]) -> Served:
    return serve("--basic-auth", KEYS)


@pytest.mark.full
def test_it_answers_as_root_without_a_display_and_starts_no_rank(plain: Served) -> None:
    status, text, _ = Reader()(plain.url + "/")
    assert status == 200 and "See distributed training happen" in text
    log = plain.log.read_text()
    assert f"The web app is at {plain.url}/" in log
    assert "16 ranks, 4 GB and 30 minutes per run; 4 runs at a time" in log
    assert "WARNING" not in log


@pytest.mark.parametrize("page", ["/", "/run?id=none", "/watch?id=none"])
def test_no_page_names_another_machine(plain: Served, page: str) -> None:
    """The browser's test sees every request; this one reads the text."""
    status, text, _ = Reader()(plain.url + page)
    assert status == 200
    linked = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?(\w+://[^"\')\s]+|//[^"\')\s]+)', text)
    assert linked == []


def test_a_server_that_no_browser_has_opened_holds_no_ranks(plain: Served) -> None:
    """That those of the first page are prepared is a browser's test."""
    assert Reader()(plain.url + "/")[0] == 200
    assert plain.process.pid not in {parent for parent, _ in processes().values()}


def test_websockets_of_foreign_pages_are_refused(plain: Served) -> None:
    reader = Reader()
    for own in (plain.url, f"http://localhost:{plain.port}"):
        assert websocket(plain, own, reader) == 101
    for foreign in (
        "http://evil.example",
        f"http://evil.example:{plain.port}",
        f"http://127.0.0.1:{plain.port + 1}",
        "null",
    ):
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


def test_without_the_option_there_is_no_job(plain: Served) -> None:
    assert "There is no such job here" in Reader()(plain.url + "/job?name=mine")[1]
    assert "Jobs to watch" not in Reader()(plain.url + "/")[1]


def test_a_login_page_of_our_own_stands_before_everything(locked: Served) -> None:
    reader, login = Reader(), locked.url + "/login"
    for page in ("/", "/run?id=x", "/watch?id=x", "/replay?id=x", "/static/js/bokeh.min.js"):
        status, text, headers = reader(locked.url + page)
        assert status == 302 and text == "" and "/login?next=" in headers["Location"], page
    status, text, _ = reader(login + "?next=%2Frun%3Fid%3Dx")
    assert status == 200 and "Password" in text
    assert "://" not in text and 'src="' not in text, "it asks no other server for anything"
    assert websocket(locked, locked.url, reader) == 403

    status, text, headers = reader.form(
        login, login + "?next=%2Frun%3Fid%3Dx", user="ann", password="s3:cret"
    )
    assert (status, headers["Location"]) == (302, "/run?id=x")
    assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Lax" in headers["Set-Cookie"]
    assert reader(locked.url + "/")[0] == 200
    assert websocket(locked, locked.url, reader) == 101
    assert websocket(locked, "http://evil.example", reader) == 403


def test_a_form_of_another_server_logs_no_one_in_or_out(locked: Served) -> None:
    reader, stranger, login = Reader(), Reader(), locked.url + "/login"
    right = {"user": "ann", "password": "s3:cret"}
    stranger(login)
    stranger_token = Reader.field(stranger(login)[1])
    for token in ("", "x", stranger_token):
        reader(login)
        status, text, _ = reader(login, right | {"token": token})
        assert status == 403 and "This form was from before" in text
    assert reader.form(login, **right)[0] == 302
    assert reader(locked.url + "/logout")[0] == 405, "a picture in another page asks this way"
    assert reader(locked.url + "/logout", {})[0] == 403
    assert reader(locked.url + "/")[0] == 200, "still logged in"


def test_a_logout_ends_the_session_here_and_not_only_in_the_browser(locked: Served) -> None:
    reader = Reader()
    assert reader.form(locked.url + "/login", user="ann", password="s3:cret")[0] == 302
    cookies, token = reader.cookies, reader.token(locked.url + "/")
    line = Line(locked, token, cookies)
    assert Reader()(locked.url + "/", Cookie=cookies)[0] == 200
    assert reader.form(locked.url + "/", locked.url + "/logout")[0] == 302
    assert reader(locked.url + "/")[0] == 302
    assert Reader()(locked.url + "/", Cookie=cookies)[0] == 302, "replayed"
    assert line.is_closed(), "what was opened with this login"
    line.close()


@pytest.mark.full
def test_guesses_wait_longer_each_time_and_all_at_once_are_one(
    serve: Callable[..., Served],
) -> None:
    served = serve("--basic-auth", KEYS)
    reader, login = Reader(), served.url + "/login"
    token = Reader.field(reader(login)[1])
    cookies = reader.cookies

    def guess(number: int) -> int:
        fields = {"user": "ann", "password": f"wrong {number}", "token": token}
        return Reader()(login, fields, Cookie=cookies)[0]

    with ThreadPoolExecutor(40) as pool:
        answers = Counter(pool.map(guess, range(200)))
    assert answers[403] + answers[429] == 200
    assert answers[403] <= 7, "of 200: 1, 2, 4, 8 ... s between two of them"
    for number in range(2):  # wrong just now, and not for the first time: the wait has not run out
        until(lambda number=number: guess(number) == 403, 60, "a guess is heard")
    status, text, headers = reader(login, {"user": "ann", "password": "s3:cret", "token": token})
    assert status == 429 and int(headers["Retry-After"]) >= 1
    assert "Too many wrong passwords. Try again in" in text
    served.process.send_signal(0)


@pytest.mark.full
def test_a_name_cannot_be_used_to_write_into_the_login_page(serve: Callable[..., Served]) -> None:
    served = serve("--basic-auth", KEYS)
    status, text, _ = Reader().form(served.url + "/login", user='"><b>', password="x")
    assert status == 403 and "This user and password are not known here." in text
    assert '"><b>' not in text


def test_a_forged_login_is_none(locked: Served) -> None:
    cookie = f"workbench_user_{locked.port}=ann"
    assert Reader()(locked.url + "/", Cookie=cookie)[0] == 302


@pytest.mark.full
def test_it_warns_where_others_can_reach_it_and_interrupted_it_leaves_nothing(
    serve: Callable[..., Served],
) -> None:
    served = serve(host="0.0.0.0", first=PREPARED)
    log = served.log.read_text()
    assert "WARNING: anyone who reaches this address can start processes" in log
    assert "--basic-auth" in log

    def ranks() -> set[int]:
        known, above = processes(), {served.process.pid}
        for _ in range(3):  # guardian, fork server, ranks
            above |= {pid for pid, (parent, _) in known.items() if parent in above}
        return above - {served.process.pid}

    assert not remains(lambda: len(ranks()) < 6, 60), "the pool of four gets ready"
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
    assert allocation.NAME not in os.environ, "this process's later runs have no bound"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--launcher", "slrum"], "there is no launcher 'slrum' (did you mean 'slurm'?)"),
        (["--data", "/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_what_the_operator_names_must_be_there(options: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["serve", *options])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit) and words in done.stderr


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
