"""Sanitized HTML: what a stored output may bring into a page."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

TAGS = {
    *"a b blockquote br caption code col colgroup details div em h1 h2 h3 h4".split(),
    *"hr i img li ol p pre s small span strong sub summary sup table tbody td".split(),
    *"tfoot th thead tr u ul".split(),
}
VOID = {"br", "col", "hr", "img"}
ATTRIBUTES = {"alt", "title", "colspan", "rowspan", "align", "width", "height"}
DROPPED = {"script", "style", "iframe", "object", "svg", "template"}  # with all that is in them


class Cleaner(HTMLParser):
    """Keeps known tags and harmless attributes; text stays text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._dropping = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Keep a known tag."""
        if tag in DROPPED:
            self._dropping += 1
        if self._dropping or tag not in TAGS:
            return
        kept = [(name, value or "") for name, value in attributes if _harmless(name, value or "")]
        words = "".join(f' {name}="{escape(value)}"' for name, value in kept)
        self.parts.append(f"<{tag}{words}>")

    def handle_endtag(self, tag: str) -> None:
        """Keep the end of a known tag."""
        if tag in DROPPED:
            self._dropping = max(0, self._dropping - 1)
        elif not self._dropping and tag in TAGS - VOID:
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """Keep text."""
        if not self._dropping:
            self.parts.append(escape(data, quote=False))


def _harmless(name: str, value: str) -> bool:
    if name == "src":
        return value.startswith(("data:image/svg+xml;", "data:image/png;"))
    if name == "href":
        return value.startswith(("http://", "https://", "#"))
    return name in ATTRIBUTES


def clean(html: str) -> str:
    """Return ``html`` with known tags and harmless attributes only."""
    cleaner = Cleaner()
    cleaner.feed(html)
    cleaner.close()
    return "".join(cleaner.parts)
