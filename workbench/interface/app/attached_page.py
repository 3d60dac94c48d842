"""The page of an attached job: served beside the job, and ended after it.

    python -m workbench.interface.app.attached_page FOLDER SOCKET JOB

SOCKET is a descriptor that listens already, so that the address could be told before the server was
ready; JOB is a descriptor of the job's process, readable once that has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from workbench.common import threads
from workbench.common.errors import WorkbenchError

GRACE_S = 15.0  # so long the page stays after the job has ended and the last browser has gone
LAST_LOOK_S = 5.0  # for the last rows, once the job has ended


def open_beside(folder: Path, port: int) -> str:
    """Start the page's process for the job that this process is about to become; return the page's
    address. Raises WorkbenchError if the port is taken.

    The page's process has no parent in the job: a job that waits for its children does not find it.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise WorkbenchError(
            f"the page cannot listen on 127.0.0.1:{port}: {error.strerror}. Name another port, or "
            "leave --port out: a free one is taken"
        ) from None
    listener.listen(128)
    job = os.pidfd_open(os.getpid())
    words = [sys.executable, "-m", "workbench.interface.app.attached_page"]
    if (starter := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            nothing = subprocess.DEVNULL
            subprocess.Popen(
                [*words, str(folder), str(listener.fileno()), str(job)],
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                pass_fds=(listener.fileno(), job),
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("WORKBENCH_")},
            )
        os._exit(0)
    os.waitpid(starter, 0)
    os.close(job)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/watch"
    listener.close()
    return address


def main(folder: Path, listening: int, job: int) -> None:
    """Serve the page until the job has ended and no browser is connected any more."""
    from workbench.interface.app.watch_page import serve_run
    from workbench.runs.attach import Watching

    watching = Watching(folder)
    ended = threading.Event()

    def wait() -> None:
        while not select.select([job], [], [], 0.5)[0]:
            if ended.is_set():
                return
        watching.wait(LAST_LOOK_S)
        ended.set()

    threads.start(wait, "workbench attached job", stop=ended.set)
    with socket.socket(fileno=listening) as listener:
        listener.setblocking(False)
        words = f"{folder} · attached: nothing here changes the job"
        serve_run(
            watching,
            listener.getsockname()[1],
            title=folder.name,
            words=words,
            folder=folder,
            listener=listener,
            ended=ended.is_set,
            grace_s=GRACE_S,
        )
    watching.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
