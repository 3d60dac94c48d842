"""A picture in HTML that is seen wherever a notebook is read.

JupyterLab takes inline SVG apart, and leaves SVG outputs out, in a notebook that it does not trust
yet: one that was just cloned, say. A picture that is an image it shows.
"""

from __future__ import annotations

import base64
from html import escape


def image(svg: str, words: str) -> str:
    """Return ``svg`` as an HTML image; ``words`` is its alternative text."""
    data = base64.b64encode(svg.encode()).decode()
    style = "max-width:100%;height:auto"
    return f'<img alt="{escape(words)}" style="{style}" src="data:image/svg+xml;base64,{data}">'
