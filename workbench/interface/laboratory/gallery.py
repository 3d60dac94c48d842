"""The laboratory's presets as cards, eight with a recorded run that moves; the others folded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from workbench.front_end.assets import joined
from workbench.interface.gallery import GALLERY, picture
from workbench.presets.catalogue import Preset
from workbench.views.pages.widget import Small


class Gallery(Small):
    """The cards. ``run`` and ``choose`` are called with a preset's name, when its card is pressed.

    A page asks for its pictures, half a megabyte, and gets them as a message: a notebook that is
    saved with its widgets' state holds none.
    """

    _esm = joined("widgets/gallery.js")
    presets: Any = traitlets.List().tag(sync=True)
    chosen = traitlets.Unicode().tag(sync=True)
    unfolded = traitlets.Bool(True).tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)  # a run goes on: none can be started

    def __init__(
        self,
        presets: Mapping[str, Preset],
        run: Callable[[str], None],
        choose: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._actions = {"run": run, "choose": choose}
        self.presets = [
            {"name": name, "words": one.words, "group": one.group, "moves": name in GALLERY}
            for name, one in presets.items()
        ]

    def _hear(self, widget: object, content: Any, buffers: object) -> None:
        super()._hear(widget, content, buffers)
        if not isinstance(content, dict):
            return
        if content.get("type") == "pictures":
            self._send_pictures(bool(content.get("dark")), bool(content.get("still")))
        elif (act := self._actions.get(content.get("type", ""))) is not None and any(
            one["name"] == content.get("name") for one in self.presets
        ):
            act(content["name"])

    def _send_pictures(self, dark: bool, still: bool) -> None:
        names = [one["name"] for one in self.presets if one["moves"]]
        files = [picture(name, dark=dark, still=still).read_bytes() for name in names]
        self.send({"type": "pictures", "names": names}, buffers=files)
