"""The web app: pages served by Panel, for this machine only unless told otherwise.

A page is a file beside this one, run once a browser session; what a session holds lives in
``page.py``, as Panel clears a page file's own names before a session's end is told.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

PAGE = Path(__file__).parent / "ring.py"
UNUSED_MS = 15_000  # so long after its last page has gone a session ends, and its ranks with it


def serve(port: int = 5006, host: str = "127.0.0.1") -> NoReturn:
    """Become the server, until interrupted. Asks no other machine; ranks end with it."""
    print(f"The web app is at http://{host}:{port}/ring. Ctrl-C ends it.", flush=True)
    origins = {f"{host}:{port}", f"localhost:{port}"}
    command = [
        sys.executable, "-m", "panel", "serve", str(PAGE), f"--port={port}", f"--address={host}",
        *(f"--allow-websocket-origin={origin}" for origin in sorted(origins)),
        f"--unused-session-lifetime={UNUSED_MS}", "--check-unused-sessions=1000",
        "--log-level=warning",
    ]  # fmt: skip
    os.execv(sys.executable, command)


def stage(run: Any) -> Any:
    """The stage of ``run`` as a Panel component, for a page of one's own (``Run.__panel__``)."""
    from workbench.app.page import Stage

    shown = Stage(sizing_mode="stretch_width")
    shown.watch(run)
    return shown
