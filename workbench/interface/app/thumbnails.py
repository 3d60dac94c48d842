"""The moving pictures of the start page's cards, as the package has them."""

from __future__ import annotations

import hashlib
from functools import cache

from tornado.web import HTTPError, RequestHandler

from workbench.front_end.assets import asset
from workbench.interface.gallery import GALLERY, GROUNDS, file_name

ROUTE = "/thumbnails"
KEPT = "private, max-age=31536000, immutable"  # their addresses name their version
FILES = {
    file_name(stem, dark=bool(dark), still=still)
    for stem in GALLERY.values()
    for dark in range(len(GROUNDS))
    for still in (False, True)
}


@cache
def addresses(preset: str) -> dict[str, str]:
    """Return the addresses of a preset's pictures, by ``light``, ``dark``, ``light still`` and
    ``dark still``; none of a preset without.
    """
    if preset not in GALLERY:
        return {}
    return {
        f"{ground} still" if still else ground: _address(
            file_name(GALLERY[preset], dark=bool(dark), still=still)
        )
        for dark, ground in enumerate(GROUNDS)
        for still in (False, True)
    }


def _address(name: str) -> str:
    version = hashlib.sha256(asset(f"thumbnails/{name}").read_bytes()).hexdigest()[:12]
    return f".{ROUTE}?name={name}&v={version}"


class Thumbnails(RequestHandler):
    """Answers with one of the pictures; a browser keeps it."""

    async def get(self) -> None:
        name = self.get_query_argument("name", "")
        if name not in FILES:
            raise HTTPError(404, reason="There is no such picture")
        self.set_header("Content-Type", "image/webp")
        self.set_header("Cache-Control", KEPT)
        self.finish(asset(f"thumbnails/{name}").read_bytes())
