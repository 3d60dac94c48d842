"""A stage that shows one run after the other: the laboratory's."""

from __future__ import annotations

from typing import Any

from workbench.views.packing import Message
from workbench.views.pages.feed import Page, Start, feed, nothing
from workbench.views.pages.page import Trials
from workbench.views.pages.widget import Picture
from workbench.views.scenes import first_scene


class LiveStage(Picture):
    """``watch`` a run; watching another one leaves the first. Before, it says that nothing runs."""

    def __init__(self, on_start: Start) -> None:
        super().__init__()
        self._on_start = on_start
        self._page: Page | None = None
        self._greeted = False  # a page has asked before; one that asks later is answered then
        self.on_msg(self._hear)
        self.await_page()

    def watch(self, run: Any, trials: Trials | None = None) -> None:
        """Show a run. ``trials``: what it can run beside it."""
        self.leave()
        scene = first_scene(run.store.metadata)
        self._page = feed(run).join(self.push, on_start=self._on_start, scene=scene, trials=trials)
        if self._greeted:
            self._page.hear({"type": "hello"})

    def refresh(self) -> None:
        """Send the facts again."""
        if self._page is not None:
            self._page.refresh()

    def leave(self) -> None:
        """Send nothing more. The run goes on."""
        if self._page is not None:
            self._page.leave()
        self._page = None

    def _hear(self, _: object, content: Any, __: object) -> None:
        if not isinstance(content, dict):
            return
        self._greeted = True
        if self._page is not None:
            self._page.hear(content)
        elif content.get("type") == "do" and content.get("verb") == "start":
            self.push(Message({"type": "said", "id": content.get("id"), **self._started()}))
        elif content.get("type") == "hello":
            self.push(nothing(can_start=True))

    def _started(self) -> dict[str, Any]:
        try:
            return {"ok": True, "words": self._on_start({})}
        except Exception as error:  # in its own words
            return {"ok": False, "words": str(error)}

    def close(self) -> None:
        self.leave()
        super().close()
