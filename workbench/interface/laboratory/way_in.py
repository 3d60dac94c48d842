"""The laboratory's way in: the cards, a line of buttons, the form that it folds; and the code."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w
import traitlets

from workbench.front_end.assets import joined
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
    """The cards, a line of buttons, and the form: folded until a reader changes something, then
    below the line, or beside the cards of which one is changed first.
    """

    def __init__(self, gallery: Gallery, buttons: w.HBox, *form: w.Widget) -> None:
        self.gallery = gallery
        self.change = w.ToggleButton(
            description="Change", tooltip="Show the form, and the comparisons"
        )
        self.change.observe(lambda _: self._fold_form(), "value")
        buttons.children = (*buttons.children, self.change)
        buttons.add_class("wb-lab-buttons")
        self._form = w.VBox(form)
        self._fold_form()
        filled = w.VBox([buttons, self._form])
        filled.add_class("wb-lab-form")
        super().__init__([gallery, filled])
        self.add_class("wb-way-in")

    def put_beside(self) -> None:
        """Show the form beside the cards."""
        self.add_class("wb-beside")
        self.unfold_form()

    def unfold_form(self) -> None:
        """Show the form, for something in it is to be seen."""
        self.change.value = True

    def fold(self) -> None:
        """Fold the cards and the form away: a run has begun, and its stage needs the room."""
        self.gallery.unfolded = self.change.value = False
        self.remove_class("wb-beside")

    def _fold_form(self) -> None:
        self._form.layout.display = "" if self.change.value else "none"


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
