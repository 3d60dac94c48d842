"""Plotly's JavaScript, as the package ``plotly`` ships it: pages load it when a chart is near.

Panel would put a version of its own into every page, which takes a browser a second of a core.
"""

from __future__ import annotations

import asyncio
import gzip
from functools import cache

import plotly
from plotly.offline import get_plotlyjs
from tornado.web import RequestHandler

ROUTE = "/plotly"
ADDRESS = f".{ROUTE}?v={plotly.__version__}"
KEPT = "private, max-age=31536000, immutable"  # its address names its version


@cache
def _script(zipped: bool) -> bytes:
    script: str = get_plotlyjs()
    return gzip.compress(script.encode(), 6) if zipped else script.encode()


class PlotlyScript(RequestHandler):
    """Answers with the script; a browser keeps it."""

    async def get(self) -> None:
        zipped = "gzip" in self.request.headers.get("Accept-Encoding", "")
        script = await asyncio.to_thread(_script, zipped)
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", KEPT)
        self.set_header("Vary", "Accept-Encoding")
        if zipped:
            self.set_header("Content-Encoding", "gzip")
        self.finish(script)
