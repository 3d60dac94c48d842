"""A real browser, a real JupyterLab, a real ``workbench serve``: each started once for all tests.

A test has a browser profile of its own, and notebooks, kernels and runs of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

from tests.processes import ending_with_us

ROOT = Path(__file__).parents[2]
GRACE = 5.0  # seconds until a run ends whose pages are closed; 15 where none is in a hurry
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
# JupyterLab's settings: for each page it would start node to see whether it should be built again,
# and as it starts npm, to find servers of languages.
SPARING = {
    "labconfig/page_config.json": {"buildAvailable": False, "buildCheck": False},
    "jupyter_server_config.json": {"ServerApp": {"jpserver_extensions": {"jupyter_lsp": False}}},
}
# A screen of 20 frames per second: at 60, drawing in software takes most of a core.
FRAMES = """(() => {
  const [next, cancel] = [requestAnimationFrame, cancelAnimationFrame].map((f) => f.bind(window));
  const asked = new Map();
  window.requestAnimationFrame = (draw) => {
    const frame = (at) => (asked.delete(id), draw(at));
    const id = setTimeout(() => asked.set(id, next(frame)), 35);
    return id;
  };
  window.cancelAnimationFrame = (id) => (clearTimeout(id), cancel(asked.get(id)));
})()"""
PATIENCE = 180.0  # seconds for what comes at once, unless the cores have other work
LOCAL = (
    "http://127.0.0.1",
    "ws://127.0.0.1",
    "http://localhost",
    "ws://localhost",
    "data:",
    "blob:",
    "file:",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser that draws in software shares the cores with the ranks that it shows."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timing)


@dataclass
class Watched:
    """A page, and what it asked of other machines or complained about."""

    page: Page
    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Make pages: ``open_page(color_scheme="dark")``. None may have asked another machine."""
    pages: list[tuple[BrowserContext, Watched]] = []

    def make(**options: object) -> Watched:
        options = {"viewport": {"width": 1280, "height": 1000}, **options}
        context = browser.new_context(**options)
        context.set_default_timeout(1000 * PATIENCE)
        context.set_default_navigation_timeout(1000 * PATIENCE)
        context.add_init_script(FRAMES)
        page = context.new_page()
        watched = Watched(page)
        page.on(
            "request", lambda r: None if r.url.startswith(LOCAL) else watched.foreign.append(r.url)
        )
        page.on("pageerror", lambda e: watched.errors.append(str(e)))
        pages.append((context, watched))
        return watched

    yield make
    for context, watched in pages:
        context.close()
        assert watched.foreign == [], "requests left this machine"
        assert watched.errors == [], "the page raised"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def answers(
    url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = PATIENCE
) -> None:
    """Wait until ``url`` answers; fail with the server's own words if it ends or stays silent."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=20).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"{url} does not answer:\n{log.read_text()[-3000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)  # SIGINT would ask JupyterLab's "are you sure"
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A JupyterLab for all tests: its address, its token, and the folder of its settings.

    It serves the folder that all of pytest's temporary ones are in.
    """
    port, token = free_port(), secrets.token_hex(8)
    own = tmp_path_factory.mktemp("jupyter")
    settings = own / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    news = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(news))
    (own / "config" / "labconfig").mkdir(parents=True)
    for name, content in SPARING.items():
        (own / "config" / name).write_text(json.dumps(content))
    places = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    env = os.environ | {name: str(own / folder) for name, folder in places.items()}
    env["PYTHONPATH"] = str(ROOT)
    command = [
        sys.executable,
        "-c",
        ending_with_us("from jupyterlab.labapp import main\nmain()"),
        "--no-browser",
        "--expose-app-in-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={tmp_path_factory.getbasetemp()}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
        "--JupyterNotebookApp.expose_app_in_browser=True",
    ]
    log = own / "lab.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=ROOT)
    try:
        answers(f"http://127.0.0.1:{port}/api?token={token}", server, log)
        yield f"http://127.0.0.1:{port}", token, settings
    finally:
        end(server)


@pytest.fixture
def lab(
    jupyter: tuple[str, str, Path],
    lab_folder: Path,  # the module's own: notebooks in a temporary folder
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of a notebook in ``lab_folder``: fill in its name. Kernels end with the test."""
    address, token, settings = jupyter
    folder = lab_folder.relative_to(tmp_path_factory.getbasetemp()).as_posix()
    yield f"{address}/lab/tree/{folder}/{{}}?token={token}&reset"

    def ask(method: str, path: str) -> bytes:
        request = urllib.request.Request(
            f"{address}/api/{path}", method=method, headers={"Authorization": f"token {token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    for session in json.loads(ask("GET", "sessions")):
        ask("DELETE", f"sessions/{session['id']}")
    (settings / "themes.jupyterlab-settings").unlink(missing_ok=True)


# ---- the web app


def serve_app(log: Path, *options: str) -> tuple[subprocess.Popen[bytes], str]:
    """``workbench serve``, less patient with closed pages; its address has a slash at the end."""
    port = free_port()
    command = [
        sys.executable,
        "-c",
        ending_with_us("from workbench.cli import app\napp()"),
        "serve",
        "--port",
        str(port),
        "--grace",
        str(GRACE),
        *options,
    ]
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT)
    answers(f"http://127.0.0.1:{port}/login", server, log)
    return server, f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="session")
def web_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that all tests share: what is a browser's own is a test's own."""
    server, address = serve_app(tmp_path_factory.mktemp("app") / "log")
    yield address
    end(server)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start another one, with these options; gives its address."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> str:
        server, address = serve_app(tmp_path / f"app{len(started)}.log", *options)
        started.append(server)
        return address

    yield start
    for server in started:
        end(server)


# ---- what the tests look at


PIXELS = """(root) => {
  let hash = 0;
  for (const canvas of root.querySelectorAll(".wb-scene:not([hidden]) canvas")) {
    if (!canvas.width || !canvas.height) continue;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (const byte of data) hash = (Math.imul(hash, 31) + byte) | 0;
  }
  return hash;
}"""
MOVED = f"""async (root) => {{
  const look = () => [root.stage.frame(), ({PIXELS})(root)];
  const name = (m) => [m.group, m.rank, m.peer, m.op, m.step, m.chunk, m.slot].join();
  const [first, before] = look();
  await new Promise((on) => setTimeout(on, 100));
  await new Promise(requestAnimationFrame);
  const [second, after] = look();
  const was = new Map(first.marks.map((m) => [name(m), m]));
  const far = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
  const moved = second.marks.filter((m) => was.has(name(m)) && far(was.get(name(m)), m) > 0);
  return moved.length > 0 && before !== after;
}}"""


def frame(stage: Locator) -> dict:
    """Return what the stage says is on screen."""
    return stage.evaluate("(root) => root.stage.frame()")


def known(stage: Locator, what: str) -> object:
    """A field of what the stage knows of the run, but for its table."""
    return stage.evaluate("(root, what) => root.stage.known()[what]", what)


def calls(stage: Locator) -> int:
    """Return how many collectives the page has rows of."""
    return int(stage.evaluate("(root) => root.stage.known().table.calls.length"))


def marks(now: dict[str, Any], what: str) -> list[dict[str, Any]]:
    """Those of one kind, of what is on screen."""
    return [mark for mark in now["marks"] if mark["mark"] == what]


def opened_page(page: Page, uri: str, scene: str) -> Locator:
    """The stage of a saved run's page, with its rows, opened with this scene."""
    page.goto(uri)
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    open_scene(stage, scene)
    return stage


def keys_step_and_change_the_scene(page: Page, stage: Locator, key: str, scene: str) -> None:
    """Arrows step the playhead there and back; "1" leads to the overview, ``key`` back."""
    stage.focus()
    first = frame(stage)["playhead"]
    page.keyboard.press("ArrowRight")
    on = frame(stage)["playhead"]
    page.keyboard.press("ArrowLeft")
    assert first < on and frame(stage)["playhead"] < on
    page.keyboard.press("1")
    assert stage.get_attribute("data-scene") == "overview"
    page.keyboard.press(key)
    assert stage.get_attribute("data-scene") == scene


def open_scene(stage: Locator, name: str) -> None:
    stage.evaluate("(root, name) => root.stage.open(name)", name)


def pixels(stage: Locator) -> int:
    """The scene's picture as one number: another picture, another number."""
    return int(stage.evaluate(PIXELS))


def let_draw(page: Page, ms: int) -> None:
    """Return when the page has had so many ms and has drawn what came of them: words change four
    times per second, and a frame may take long where the cores have other work.
    """
    page.evaluate(
        "(ms) => new Promise((on) => setTimeout(() => requestAnimationFrame("
        "() => requestAnimationFrame(() => requestAnimationFrame(on))), ms))",
        ms,
    )


def wait_for(look: Callable[[], object], what: str, seconds: float = PATIENCE) -> object:
    """Look until there is something; fail saying what was awaited."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := look():
            return result
        time.sleep(0.1)
    pytest.fail(f"not seen within {seconds:.0f} s: {what}")


def sees_chunks_move(stage: Locator, seconds: float = PATIENCE) -> None:
    """The same chunk is at two places at two moments 0.1 s apart, and the pixels differ."""
    wait_for(lambda: stage.evaluate(MOVED), "a chunk on the move", seconds)
