"""The laboratory's way in: the cards, and the form below or beside them; the code that it runs."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w
import traitlets

from workbench.common.assets import joined
from workbench.interface.laboratory.gallery import Gallery
from workbench.views.pages.widget import Small


class Code(Small):
    """Text to read and to copy."""

    _esm = joined("widgets/copy.js")
    text = traitlets.Unicode().tag(sync=True)


class StartButton(w.Button):
    """The button that starts a run; of a costly one it asks first, and the next click starts it."""

    def __init__(self) -> None:
        self._asked = ""
        super().__init__(description="Run", icon="play", button_style="primary")
        self.add_class("wb-lab-start")

    def agreed(self, question: str) -> bool:
        """Return whether there is no question, or it was asked at the last click already."""
        agreed = question in ("", self._asked)
        self._asked = "" if agreed else question
        self.description = "Run" if agreed else "Start anyway"
        return agreed


class WayIn(w.Box):
    """The cards, and the form: below them, or beside them once a card is changed first."""

    def __init__(self, gallery: Gallery, buttons: w.HBox, *form: w.Widget) -> None:
        self.gallery = gallery
        buttons.add_class("wb-lab-buttons")
        filled = w.VBox([buttons, *form])
        filled.add_class("wb-lab-form")
        super().__init__([gallery, filled])
        self.add_class("wb-way-in")

    def put_beside(self) -> None:
        """Show the form beside the cards."""
        self.add_class("wb-beside")

    def fold(self) -> None:
        """Fold the cards away: a run has begun, and its stage needs the room."""
        self.gallery.unfolded = False
        self.remove_class("wb-beside")


def row(*widgets: Any) -> w.HBox:
    """Return widgets in a row, which wraps where a page is narrow."""
    box = w.HBox(widgets)
    box.add_class("wb-row")
    return box


def title(words: str) -> w.HTML:
    """Return the title of a part."""
    return w.HTML(f"<h3>{html.escape(words)}</h3>")


def close_whole(widget: w.Widget) -> None:
    """Close a widget and everything in it: first the whole, for what has a closed part can tell no
    page its state, and a page that asks for the states of all then gets none.
    """
    parts = getattr(widget, "children", ())
    widget.close()
    for part in parts:
        close_whole(part)
