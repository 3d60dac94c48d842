"""For every test: nothing that it started may outlive it.

Processes that descend from this test run carry its mark in their environment, whatever their parent
is by then, so a look through /proc finds what escaped and no one else's. The pool of warm ranks
lives between tests by design; it must be gone at the end of the run.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

RUN = os.environ.setdefault("WORKBENCH_TEST_RUN", uuid.uuid4().hex)
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if not RUN.endswith(WORKER):  # one of several: what the others start is theirs
    RUN = os.environ["WORKBENCH_TEST_RUN"] = RUN + WORKER
MARK = f"WORKBENCH_TEST_RUN={RUN}".encode()
os.environ.setdefault("WORKBENCH_COSTS", "shipped")  # "auto" goes by what every machine has
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a job in the background inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests interrupt what they start
Leftovers = TypeVar("Leftovers")
OURS = ("workbench.launchers", "multiprocessing.spawn", "multiprocessing.forkserver")
LIVE = "workbench.common.live_runs"  # the module that knows, once a test has imported it
_foreign: dict[str, int] = {}  # processes of others, which stay that: pid -> when it began
WHOLE_PASS, SLOWEST = 1000, 50  # tests
GRACE = 2.0  # seconds of an idle machine; ranks must be gone 1 s after their driver

# A failed assertion shows its values in what tests share, too.
_ROOT = Path(__file__).parents[1]
pytest.register_assert_rewrite(
    *(
        ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        for room in ("tests", "tools")
        for path in sorted((_ROOT / room).rglob("*.py"))
        if not path.name.startswith(("test_", "conftest", "__"))
    )
)
settings.register_profile("sample", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=200)
settings.load_profile("sample")
# Else Hypothesis parses every module that has been imported, for 10 s of a core in each worker, and
# draws from its literals: cases would depend on what other tests have imported.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


# Servers that take 5 to 20 s of a core to start, and the template that others are forked from:
# files whose tests share one run in one worker.
SERVER = re.compile(r"\b(lab|web_app): str\b|from tests\.interface\.app\.(served) import")


@functools.cache
def together(file: str) -> str:
    """Return what tests of this file run together with, in the same worker: the server that they
    share, or the file itself.
    """
    shared = SERVER.search(Path(file).read_text(encoding="utf-8"))
    return shared[1] or shared[2] if shared else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out files, as ``--dist loadfile`` does, but those that share a server to one worker."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(str(config.rootpath / nodeid.split("::", 1)[0]))

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage only in what comes after the tests are collected: of a million objects that
    stay, looking takes a third of the time until the first test, and half a second of each test
    that asks for it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def processes() -> dict[int, tuple[int, str]]:
    """Processes of this test run that train or launch: pid -> (parent's pid, command line)."""
    result = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            since = os.stat(f"/proc/{name}").st_ctime_ns
            if _foreign.get(name) == since:
                continue
            folder = Path("/proc", name)
            words = (folder / "environ").read_bytes().split(b"\0")
            if MARK not in words:
                if len(words) > 1:  # of a process that is being started there are none yet
                    _foreign[name] = since
                continue
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except ProcessLookupError:  # it ends, or is a thread of the kernel's
            _foreign[name] = since
            continue
        except OSError:  # it has just ended
            continue
        if state not in "ZX" and any(word in command for word in OURS):
            result[int(name)] = (int(parent), command.strip())
    result.pop(os.getpid(), None)
    return result


def orphans() -> dict[int, tuple[int, str]]:
    """Those of them whose parent has ended: the kernel gave them to a process outside this run."""
    ours = processes()
    return {
        pid: (parent, command) for pid, (parent, command) in ours.items() if not _is_ours(parent)
    }


def _is_ours(pid: int) -> bool:
    try:
        return pid == os.getpid() or MARK in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def shared_memory() -> set[str]:
    """Names in /dev/shm; the workbench itself never makes one. The browser's come and go."""
    return {
        name
        for name in os.listdir("/dev/shm")
        if not name.startswith((".org.chromium", ".com.google"))
    }


def of_no_other(names: set[str]) -> set[str]:
    """Return those that no process outside this run maps: other tests run at the same time.

    By inode: a semaphore's file is mapped under the name that it had while it was made.
    """
    inodes = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            inodes[str(os.stat(f"/dev/shm/{name}").st_ino)] = name
    for folder in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            lines = (folder / "maps").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        mapped = {line.split()[4] for line in lines if "/dev/shm/" in line} & inodes.keys()
        if mapped and not _is_ours(int(folder.name)):
            inodes = {inode: name for inode, name in inodes.items() if inode not in mapped}
    return set(inodes.values())


def remains(look: Callable[[], Leftovers], seconds: float = GRACE) -> Leftovers:
    """Return what ``look()`` still finds after a moment's patience, a longer one where the cores
    are busy; falsy once nothing is there.
    """
    from tests.live import crowding  # after it is registered above

    deadline = time.monotonic() + seconds * crowding()
    pause = 0.01  # longer and longer: a look through /proc is not for nothing
    while (leftovers := look()) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
    return leftovers


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves an orphaned process or a file in /dev/shm."""
    before = shared_memory()
    yield
    left = remains(orphans)
    assert not left, f"processes outlived their driver by {GRACE:.0f} s: {left}"
    files = remains(lambda: of_no_other(shared_memory() - before))
    assert not files, f"files left in /dev/shm: {files}"


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Fail a test that leaves a variable of the workbench changed: it would reach later runs."""
    before = _variables()
    yield
    assert _variables() == before


def _variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith("WORKBENCH_")}


@contextlib.contextmanager
def ended(whose: str) -> Iterator[None]:
    """End what is live, of all that begins meanwhile: runs under any launcher, studies, ranks that
    run cells. Fails where there is something that does not end by itself in a moment.
    """
    before = {*live_now()}
    yield
    if left := remains(lambda: [one for one in live_now() if one not in before]):
        live, threads = sys.modules[LIVE], sys.modules["workbench.common.threads"]
        words = [one.words() if isinstance(one, live.Entry) else one.name for one in left]
        threads.stop_launching()
        live.end_all(f"{whose} has ended", but=before)
        pytest.fail(f"{whose} leaves live: {words}; use `with wb.run(...)`", pytrace=False)


def live_now() -> list[Any]:
    """Return the runs and teams of ranks that are live in this process, and threads of studies."""
    if (live := sys.modules.get(LIVE)) is None:
        return []
    live.kept = True  # also where a test drops it: what ends by itself would not be found here
    threads = sys.modules["workbench.common.threads"]._running
    entries = [one for one in [*live._entries] if one.refer() is not None]
    return [*entries, *(one for one, task in [*threads.items()] if task.launches)]


@pytest.fixture(autouse=True, scope="module")
def nothing_live_after_the_module() -> Iterator[None]:
    """End what fixtures of a module leave live, and fail its last test."""
    with ended("the module"):
        yield


@pytest.fixture(autouse=True)
def nothing_live(nothing_left: None) -> Iterator[None]:
    """End what a test leaves live, also where it has failed, and fail it."""
    with ended("the test"):
        yield


@pytest.fixture(autouse=True, scope="session")
def ranks_inherit_what_tests_import() -> Iterator[None]:
    """Import in the fork server what a test's file imports: a rank imports its task from there, and
    would take 0.4 s of a core for it.
    """
    from workbench.launchers.processes import pool

    with pytest.MonkeyPatch.context() as patch:
        before = "def serve(fd, life_lines):\n"
        assert before in pool._GUARDIAN
        inherited = f"{before}    import hypothesis, polars, pytest\n"
        patch.setattr(pool, "_GUARDIAN", pool._GUARDIAN.replace(before, inherited))
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_left_at_all() -> Iterator[None]:
    """After the last test the pool of warm ranks is shut down; then no process of ours is left."""
    yield
    if launcher := sys.modules.get("workbench.launchers.processes.pool"):
        launcher.shutdown()
    left = remains(processes)
    assert not left, f"processes left after wb.shutdown(): {left}"


@functools.cache
def need_chromium() -> str:
    """Return the path of the browser. There being none is a failure, never a skip."""
    from tests.browser.install import HELP, find  # after it is registered above

    return find() or pytest.fail(f"there is no Chromium: {HELP}", pytrace=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser to drive."""
    return need_chromium()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Keep the slowest tests of a whole pass, with what their fixtures took, beside the build."""
    reports = [
        one
        for ones in terminalreporter.stats.values()
        for one in ones
        if isinstance(one, pytest.TestReport)
    ]
    if WORKER or len(reports) < WHOLE_PASS:
        return
    seconds: Counter[str] = Counter()
    for one in reports:
        seconds[one.nodeid] += one.duration
    lines = [f"{took:8.2f} s  {name}\n" for name, took in seconds.most_common(SLOWEST)]
    folder = Path(terminalreporter.config.rootpath, "build")
    folder.mkdir(exist_ok=True)
    (folder / "slowest_tests.txt").write_text("".join(lines), encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked ``browser`` fails where there is no browser, whatever it would do itself."""
    if item.get_closest_marker("browser"):
        need_chromium()
