"""Idle connections of a few callers leave ``workbench serve`` descriptors, calm and room."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interface.app.served import Reader, Served, end, launch
from tests.live import until
from workbench.interface.app.guesses import network
from workbench.interface.app.lines import shorten_logs

FILES = 200  # descriptors that the server may have
FEW = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))\n"
NO_BOUND = """
from workbench.interface.app import connections
connections.SHARE = connections.SHARE_OF_ADDRESS = 1
"""
CALLERS = 2 * FILES


@contextlib.contextmanager
def crowded(folder: Path, first: str) -> Iterator[tuple[Served, list[socket.socket]]]:
    """A server with few descriptors, and idle callers from one address."""
    with contextlib.ExitStack() as undo:
        served = launch(folder, "serve", first=first)
        undo.callback(end, served)
        served.until_it_answers()
        assert Reader()(served.url + "/")[0] == 200
        callers = []
        for _ in range(CALLERS):
            caller = undo.enter_context(socket.socket())
            caller.settimeout(60)
            caller.bind(("127.0.0.2", 0))
            with contextlib.suppress(ConnectionError):
                caller.connect(("127.0.0.1", served.port))
                callers.append(caller)
        yield served, callers


def _answers(served: Served) -> bool:
    try:
        return Reader()(served.url + "/")[0] == 200
    except OSError:  # those that have gone are not all noticed yet
        return False


def closed(callers: list[socket.socket]) -> int:
    """Return how many of them the server has hung up on."""
    count = 0
    for one in callers:
        one.setblocking(False)
        try:
            count += one.recv(1) == b""
        except BlockingIOError:
            continue
        except ConnectionError:
            count += 1
    return count


def test_callers_of_one_address_leave_others_room(tmp_path: Path) -> None:
    with crowded(tmp_path, FEW) as (served, callers):
        assert Reader()(served.url + "/")[0] == 200, "from another address"
        assert closed(callers) >= CALLERS - FILES // 4
        assert "127.0.0.2 has 50 connections: more are closed" in served.log.read_text()
        for one in callers:
            one.close()
        assert Reader()(served.url + "/")[0] == 200
        assert len(served.log.read_bytes()) < 4_000


@pytest.mark.full
def test_a_server_out_of_descriptors_writes_one_line(tmp_path: Path) -> None:
    with crowded(tmp_path, FEW + NO_BOUND) as (served, callers):
        # Those that were hung up on could be accepted with no descriptor but the spare one.
        assert closed(callers) > 0
        for one in callers:
            one.close()
        until(lambda: _answers(served), 60, "it answers again")
        log = served.log.read_text()
        assert "no connection can be accepted: Too many open files" in log
        assert "Traceback" not in log and len(log) < 4_000, log[:2_000]


@pytest.mark.parametrize(("text", "args"), [("%s of %d", ("one",)), ("%s " * 400, ())])
def test_a_message_that_is_not_a_format_is_logged(text: str, args: tuple[object, ...]) -> None:
    """A message of kind ERROR is logged as a format, by Bokeh; a page can send any."""
    shorten_logs()
    record = logging.LogRecord("x", logging.ERROR, "x", 1, text, args, None)
    assert logging.getLogger("bokeh.server.protocol_handler").filter(record)
    assert len(record.getMessage()) < 600


def test_an_address_of_ipv6_counts_as_its_network() -> None:
    assert network("2001:db8::1:2") == network("2001:db8::9") == "2001:db8::/64"
    assert network("::ffff:192.0.2.1") == "192.0.2.1" and network("") == ""
