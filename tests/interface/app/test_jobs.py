"""Jobs that were started elsewhere, in the web app: those that its operator names are shown, read
only; no other folder is reached, and no page is told of one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import workbench as wb
from tests.interface.app.served import Reader, Served, end, launch
from tests.interface.app.visitor import Visitor
from tests.live import complete, until
from workbench.common.errors import WorkbenchError
from workbench.interface.app.jobs import AT_A_TIME, Jobs
from workbench.interface.app.serving import Options, serve
from workbench.recording.events import SEND
from workbench.recording.recorder import Recorder

JOB = """
import sys, time
from pathlib import Path
from workbench.recording.events import SEND
from workbench.recording.recorder import Recorder
recorder = Recorder.into_folder(Path(sys.argv[1]), 0)
recorder.joined(1)
lane = recorder.lane("comm")
for i in range(100):
    lane.write(SEND, i, i + 1, 0)
time.sleep(600)
"""


def job(folder: Path, rows: int = 3) -> None:
    """Make a folder as a job of one rank leaves it: this process is its rank."""
    folder.mkdir(parents=True)
    lane = Recorder.into_folder(folder, 0).lane("comm")
    for i in range(rows):
        lane.write(SEND, i, i + 1)


def test_only_named_folders_hold_jobs_and_only_by_the_names_listed(tmp_path: Path) -> None:
    job(tmp_path / "runs" / "mine")
    job(tmp_path / "foreign")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "foreign")
    (tmp_path / "secret").write_text("x")
    jobs = Jobs([str(tmp_path / "runs")])
    assert [*jobs.by_name()] == ["runs/mine"]
    for name in (
        "foreign",
        "../foreign",
        "runs/../../foreign",
        "runs/mine/../../foreign",
        "runs/link",
        "runs/empty",
        str(tmp_path / "foreign"),
        "mine",
        "runs",
        "",
        "runs/mine\0",
        "../secret",
    ):
        with pytest.raises(KeyError):
            jobs.join(name)
    assert [*Jobs([str(tmp_path / "foreign")]).by_name()] == ["foreign"], "a trace folder itself"
    assert not Jobs().allowed and not Jobs().by_name()


def test_a_job_is_followed_while_a_page_shows_it_and_few_at_a_time(tmp_path: Path) -> None:
    for number in range(AT_A_TIME + 1):
        job(tmp_path / f"job-{number}")
    jobs = Jobs([str(tmp_path)])
    names = [*jobs.by_name()]
    joined = [jobs.join(name) for name in names[:AT_A_TIME]]
    assert None not in joined and jobs.join(names[-1]) is None
    again = jobs.join(names[0])
    assert again is not None and joined[0] is not None and again[0] is joined[0][0]
    again[1]()
    assert jobs.join(names[-1]) is None, "another page still shows it"
    joined[0][1]()
    assert jobs.join(names[-1]) is not None
    jobs.close()


def test_what_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"there is no folder .*none"):
        Jobs([str(tmp_path / "none")])
    with pytest.raises(WorkbenchError, match=r"this machine only.*0\.0\.0\.0"):
        serve(Options(host="0.0.0.0", watch=(str(tmp_path),)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server beside a job that runs."""
    folder = tmp_path_factory.mktemp("runs")
    trace = folder / "attached <job>"
    rank = subprocess.Popen([sys.executable, "-c", JOB, str(trace)])
    server = launch(folder, "serve", "--watch", str(folder))
    try:
        until(lambda: any(trace.glob("rank-*")), 60, "the job records")
        yield server.until_it_answers(), trace
    finally:
        end(server)
        rank.kill()
        rank.wait()


def test_a_watched_job_is_a_page_that_promises_no_controls(served: tuple[Served, Path]) -> None:
    server, trace = served
    name = f"{trace.parent.name}/{trace.name}"
    status, text, headers = Reader()(f"{server.url}/job?name={quote(name)}")
    assert status == 200 and "default-src 'self'" in headers["Content-Security-Policy"]
    assert "There is no such job" not in text and str(trace.parent) not in text
    assert complete(_bar(server, f"/job?name={quote(name)}")) == {
        "title": name,
        "words": "a watched job: it was started elsewhere, "
        "and nothing here can hold, slow or end it",
        "again": "",
        "watch": "",
        "ways": [],
    }
    assert "<job>" not in text, "a folder's name is text"
    for bad in ("../" + trace.name, str(trace), "%2e%2e/x", name + "/..", ""):
        status, text, _ = Reader()(f"{server.url}/job?name={quote(bad)}")
        assert status == 200 and "There is no such job here" in text, bad
        assert "Stage" not in text and str(trace.parent) not in text


async def _bar(server: Served, address: str) -> dict[str, Any]:
    """Return the head of a page as a browser gets it."""
    visitor = await Visitor(server, address).open()
    try:
        names = ("title", "words", "again", "watch", "ways")
        await visitor.until(lambda: visitor.parts.get("BarPart"), "the page's head")
        return {name: visitor.parts["BarPart"][name] for name in names}
    finally:
        visitor.close()


@pytest.mark.full
def test_the_address_of_a_jobs_page_works_as_well_as_its_folder(
    served: tuple[Served, Path], tmp_path: Path
) -> None:
    app, trace = served
    server = launch(tmp_path, "watch", str(trace), "--no-browser")
    try:
        page = server.until_it_answers().url + "/watch"
        watching = wb.watch(page)
        watching.close()
        assert watching.folder == trace
        assert Jobs([page]).by_name() == {trace.name: trace}
    finally:
        end(server)
    for address, why in (
        (page, f"no page of a job answers at {page}: .*refused"),
        (app.url, "is not the page of a job: name the address that `workbench attach`"),
        ("http://", "no page of a job answers at http://: "),
        ("http://127.0.0.1:none/", "no page of a job answers at .*none"),
    ):
        with pytest.raises(WorkbenchError, match=why):
            wb.watch(address)
        with pytest.raises(WorkbenchError, match=why):
            Jobs([address])


class Elsewhere(BaseHTTPRequestHandler):
    """The page of a job on another machine, as a tunnel brings it here."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"folder": "/scratch/job", "machine": "another"}')


def test_a_job_on_another_machine_is_named_with_its_folder() -> None:
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(WorkbenchError, match="on another machine, in /scratch/job"):
            wb.watch(f"http://127.0.0.1:{server.server_port}/watch")
        thread.join()
