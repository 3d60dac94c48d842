"""A torch store at which ranks meet, on a port that is free; and how ranks of one machine that know
nothing but their job's name find it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from typing import Any

from workbench.common.errors import WorkbenchError

LOOPBACK = "127.0.0.1"
_LOOK = 0.02  # seconds between two calls
_REACH = 5.0  # seconds for a connection to this machine itself
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_PORT = struct.Struct("<I")


def meeting_place(ranks: int, host: str = LOOPBACK) -> Any:
    """Return a store of this process for ``ranks`` ranks to meet at; its ``port`` is free.

    Raises WorkbenchError as ``must_reach`` does.
    """
    must_reach(host)
    from torch._C._distributed_c10d import TCPStore

    listener = socket.socket()
    listener.bind((host, 0))
    listener.listen(ranks + 8)
    return TCPStore(
        host,
        listener.getsockname()[1],
        None,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def must_reach(host: str) -> None:
    """Raise WorkbenchError where this process cannot call itself at its own address ``host``: torch
    would try for minutes.
    """
    try:
        with socket.create_server((host, 0)) as listener:
            socket.create_connection(listener.getsockname(), timeout=_REACH).close()
    except OSError as error:
        what = "the address of this machine's loopback interface" if host == LOOPBACK else "this"
        remedy = (
            "Bring it up, with IPv4: ip link set lo up"
            if host == LOOPBACK
            else "Name an address of this machine: launcher_options={'address': ...}"
        )
        raise WorkbenchError(
            f"the driver cannot listen at {host} and call itself there ({error}), and the ranks "
            f"meet there: {what} must be reachable. {remedy}"
        ) from None


def tell(job: str, port: int, ranks: int, seconds: float) -> None:
    """Answer the other ranks of a job on this machine, and of this user, that ask for the port:
    from a thread, until all have asked or so many seconds have passed.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_name(job))  # abstract: gone with the last descriptor, whatever happens
    listener.listen(ranks)
    threading.Thread(target=_answer, args=(listener, port, ranks - 1, seconds), daemon=True).start()


def _answer(listener: socket.socket, port: int, callers: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with listener, contextlib.suppress(OSError):
        while callers and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            caller, _ = listener.accept()
            with caller, contextlib.suppress(OSError):
                if _user(caller) == os.geteuid():
                    caller.sendall(_PORT.pack(port))
                    callers -= 1


def ask(job: str, seconds: float) -> int | None:
    """Return the port that the job's rank 0 tells; None: it has not come in that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
            line.settimeout(max(_LOOK, deadline - time.monotonic()))
            line.connect(_name(job))
            answer = line.recv(_PORT.size)
            if _user(line) == os.geteuid() and len(answer) == _PORT.size:
                return int(_PORT.unpack(answer)[0])
        time.sleep(_LOOK)
    return None


def _name(job: str) -> str:
    return f"\0workbench/{os.geteuid()}/{job}"


def _user(line: socket.socket) -> int:
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
