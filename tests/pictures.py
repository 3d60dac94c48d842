"""Read pictures in HTML, for tests."""

from __future__ import annotations

import base64
import re


def in_image(page: str) -> str:
    """The SVG of the first image of a page."""
    match = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert match, f"no picture in {page[:200]}"
    return base64.b64decode(match[1]).decode()
