"""Comparisons in pages: cards that start one at a click, and the page of one that was started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import panel as pn

from workbench.common.errors import WorkbenchError
from workbench.interface.app.comparisons import HostedComparison
from workbench.interface.app.history import PastRuns
from workbench.interface.app.page import (
    BarPart,
    ComparisonsPart,
    Ground,
    Site,
    Stage,
    address_value,
    browser,
    frame,
    presence,
)
from workbench.presets.catalogue import comparisons
from workbench.views.scenes import first_scene

NONE = (
    "There is no such comparison here",
    "Its runs may have been forgotten, an hour after their last page was closed, or the server has "
    "been started again since.",
)


class Questions:
    """The cards of the start page, as a part of it."""

    def __init__(self, site: Site, owner: str) -> None:
        self.site, self.owner = site, owner
        self.known = comparisons()
        self.part = ComparisonsPart(self.heard)
        self.part.tell(
            questions=[
                {"name": one.name, "words": one.words, "group": one.group}
                for one in self.known.values()
            ],
            started=[],
            busy="",
            refused="",
        )
        self.part.follow(self.refresh)

    def refresh(self) -> None:
        """Show how those stand that this browser has started."""
        self.part.tell(
            started=[
                {"name": one.compared.name, "words": one.state, "href": address_of(one)}
                for one in self.site.comparisons.of(self.owner)
            ]
        )

    def heard(self, message: Mapping[str, Any]) -> None:
        compared = self.known.get(str(message.get("name")))
        if message.get("type") != "compare" or compared is None or self.part.state["busy"]:
            return
        self.part.tell(busy=f"Starting: {compared.name} …", refused="")

        def work() -> None:
            try:
                hosted = self.site.comparisons.start(compared, self.owner)
            except (WorkbenchError, OSError) as error:
                self.part.tell(busy="", refused=str(error))
            else:
                self.part.go(address_of(hosted))

        self.site.work(work)


class ComparePage:
    """One browser page of a comparison."""

    def __init__(self, site: Site, hosted: HostedComparison) -> None:
        self.site, self.hosted = site, hosted
        owner = browser(site.cookie)
        self.bar, self.ground = BarPart(self.heard), Ground()
        self.runs = PastRuns(site, owner, self.ground, hosted)
        self.stage, self._shown = Stage(), ""
        leave_runs = site.runs.enter(hosted.place, presence())
        leave_owner = site.runs.visit(hosted.owner, presence())
        pn.state.on_session_destroyed(lambda _: self.stage.leave())
        pn.state.on_session_destroyed(lambda _: leave_runs())
        pn.state.on_session_destroyed(lambda _: leave_owner())
        self.places = {
            "bar": self.bar,
            "figure": self.runs.figure,
            "past": self.runs.part,
            "stage": self.stage,
            "ground": self.ground,
        }
        self.bar.follow(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show how far it is, and the run that goes on."""
        hosted = self.hosted
        for past in hosted.pasts[-1:]:
            if past.id != self._shown and (run := past.run) is not None:
                self._shown = past.id
                self.stage.watch(run, first_scene(run.store.metadata))
        self.bar.tell(
            title=hosted.compared.name,
            words=f"{hosted.compared.words} · {hosted.state}",
            notice=hosted.words,
            serious=True,
            verdict=hosted.verdict,
            watch="",
            again="Compare again" if hosted.done else "Stop",
            ways=[],
            code=hosted.compared.code,
        )

    def heard(self, message: Mapping[str, Any]) -> None:
        if message.get("type") != "again":
            return
        if not self.hosted.done:
            self.hosted.stop()
            return

        def work() -> None:
            try:
                owner = browser(self.site.cookie) or self.hosted.owner
                hosted = self.site.comparisons.start(self.hosted.compared, owner)
            except (WorkbenchError, OSError) as error:
                self.bar.tell(notice=str(error), serious=True)
            else:
                self.bar.go(address_of(hosted))

        self.site.work(work)


def address_of(hosted: HostedComparison) -> str:
    return f"./compare?id={hosted.id}"


def compare_page(site: Site) -> pn.Template:
    """Build the page at ``/compare?id=``, for everyone with the comparison's address."""
    hosted = site.comparisons.find(address_value("id"))
    if hosted is None:
        return frame(NONE[0], {"ground": Ground()}, NONE, site.logout)
    page = ComparePage(site, hosted)
    return frame(hosted.compared.name, page.places, (), site.logout)
