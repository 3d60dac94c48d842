"""Read pictures in HTML, for tests."""

from __future__ import annotations

import base64
import re


def in_image(page: str) -> str:
    """The SVG of the first image of a page."""
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert found, f"no picture in {page[:200]}"
    return base64.b64decode(found[1]).decode()
