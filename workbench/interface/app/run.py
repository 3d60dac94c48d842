"""The pages of a run: one with all controls, for everyone with its address; one to watch only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import panel as pn

from workbench.analysis import measures
from workbench.common.errors import WorkbenchError
from workbench.common.units import counted
from workbench.experiment.spec import Experiment
from workbench.interface import form
from workbench.interface.app.charts import Charts
from workbench.interface.app.history import PastRuns
from workbench.interface.app.page import (
    BarPart,
    Ground,
    Site,
    Stage,
    address_value,
    browser,
    frame,
    presence,
)
from workbench.interface.app.runs import Hosted
from workbench.interface.app.start import link_of
from workbench.studies.changed_experiment import names_of
from workbench.studies.rank_trials import RankTrials, trials_of
from workbench.views.scenes import first_scene

_TRIAL = re.compile(r", (\d+ ranks?|link \d+ [→↔] \d+ .*)$")  # at the end of a trial's title
SOON = 300.0  # seconds before its end from which a run's page says how much time is left
NONE = (
    "There is no such run here",
    "It may have been forgotten, an hour after its last page was closed, or the server has been "
    "started again since.",
    "Runs that you have started stand on the start page.",
)


class RunPage:
    """One browser page of a run."""

    def __init__(self, site: Site, hosted: Hosted, readonly: bool) -> None:
        self.site, self.hosted, self.readonly = site, hosted, readonly
        self.owner = browser(site.cookie)
        self.bar, self.ground = BarPart(self.heard), Ground()
        self.places: dict[str, Any] = {"bar": self.bar}
        self.starting = ""
        self.next: Hosted | None = None  # of a trial that this page has begun
        self.gone = False
        if (run := hosted.run) is not None:
            self.stage = Stage()
            scene = first_scene(run.store.metadata)
            start = None if readonly else self.on_start
            self.before = None if readonly else _before(site, hosted)
            runs = [one.run for one in (self.before, hosted) if one is not None]
            trials = None if readonly else trials_of(self, runs)
            self.stage.watch(run, scene, readonly, start, trials)
            if self.before is not None:  # its events are kept as long as this page shows them
                leave_before = site.runs.enter(self.before, presence())
                pn.state.on_session_destroyed(lambda _: leave_before())
            charts = Charts(site, run, self.ground, self.owner)
            self.places |= {"stage": self.stage, "tabs": charts.tabs, "chart": charts.chart}
            if trials is not None:
                trials.follow()
            pn.state.on_session_destroyed(lambda _: self._leave())
        if not readonly:
            past = PastRuns(site, self.owner, self.ground)
            self.places |= {"past": past.part, "figure": past.figure}
            leave_run = site.runs.enter(hosted, presence())
            leave_owner = site.runs.visit(self.owner, presence())
            pn.state.on_session_destroyed(lambda _: leave_run())
            pn.state.on_session_destroyed(lambda _: leave_owner())
        self.places["ground"] = self.ground
        self.bar.follow(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the present state of the run."""
        hosted = self.hosted
        exp = hosted.past.experiment
        ways: list[dict[str, Any]] = []
        code = ""
        if not self.readonly:
            if link := link_of(exp):
                ways.append({"label": "Change and run", "href": f"./?spec={link}"})
            if hosted.run is not None:
                ways.append(
                    {"label": "Save as a page", "href": f"./replay?id={hosted.id}", "save": True}
                )
            code = form.as_program(exp)
        notice, serious = self._notice()
        self.bar.tell(
            title=hosted.past.title,
            words=self.words,
            notice=notice,
            serious=serious,
            watch="" if self.readonly else f"./watch?id={hosted.watch}",
            again="" if self.readonly or not hosted.over else self.starting or "Run it again",
            ways=ways,
            code=code,
        )

    @cached_property
    def words(self) -> str:
        """Return what runs, in one line."""
        exp = self.hosted.past.experiment
        parts = [f"{exp.strategy}, {exp.task}, {exp.ranks} rank{'s' * (exp.ranks > 1)}"]
        if way := measures.way(exp):
            parts[0] += f", {measures.way_kind(exp)} {way}"
        parts.append(f"{exp.length}, minibatches of {counted(exp.batch_size, 'sample')}")
        if self.readonly:
            parts.append("you are watching: only the run's owner can change its ranks")
        return " · ".join(parts)

    def _notice(self) -> tuple[str, bool]:
        """Return the server's notice: why it ended the run, or that it will soon."""
        hosted = self.hosted
        if hosted.words:
            return hosted.words, True
        if hosted.run is None:
            return "Its events made room for those of newer runs; its figures are below.", False
        left = self.site.runs.seconds_left(hosted)
        if not hosted.over and left < SOON:
            last = f"{left / 60:.0f} min" if left >= 90 else f"{max(left, 0):.0f} s"
            return f"This run's time is over in {last}: {self.site.runs.limits.words}", False
        return "", False

    # ---- what the reader does

    def heard(self, message: Mapping[str, Any]) -> None:
        if message.get("type") == "again" and not self.readonly and self.hosted.over:
            self.again()

    def on_start(self, _: Mapping[str, Any]) -> str:
        """Start a run that the stage itself asks for."""
        self.again()
        return "Starting the ranks …"

    def _leave(self) -> None:
        self.gone = True
        self.stage.leave()

    # ---- one rank more, another link: the host of studies/rank_trials.py

    def begin(self, exp: Experiment, name: str) -> Any:
        """Start the run of a trial, as a run of its own with a page of its own."""
        title = f"{_TRIAL.sub('', self.hosted.past.title)}, {name}"
        self.next = self.site.runs.start(exp, self.owner, title)
        return self.next.run

    def turn(self, run: Any, trials: RankTrials) -> None:
        """Show both runs of a trial, or one; a new run has a page of its own."""
        if self.gone:
            return None
        if self.next is not None and run is self.next.run:
            return self.bar.go(f"./run?id={self.next.id}&before={self.hosted.id}")
        if trials.single and self.before is not None:  # the newer one was taken back
            return self.bar.go(f"./run?id={self.before.id}")
        self.stage.watch(run, first_scene(run.store.metadata), False, self.on_start, trials)

    def refresh_facts(self) -> None:
        """Send the stage's facts again."""
        self.stage.refresh()

    def again(self) -> None:
        """Run the same experiment once more, as a run of its own."""
        if self.starting:
            return
        self.starting = "Starting the ranks …"
        self.refresh()

        def work() -> None:
            past = self.hosted.past
            try:
                hosted = self.site.runs.start(past.experiment, self.owner, past.title)
            except (WorkbenchError, OSError) as error:
                self.starting = ""
                self.refresh()
                self.bar.tell(notice=str(error), serious=True)
            else:
                self.bar.go(f"./run?id={hosted.id}")

        self.site.work(work)


def _before(site: Site, hosted: Hosted) -> Hosted | None:
    """Return the run that this one differs from in its ranks or a link alone, as the page's address
    names it.
    """
    before = site.runs.find(address_value("before"))
    if before is None or before.run is None or before is hosted:
        return None
    return before if names_of(before.past.experiment, hosted.past.experiment) else None


def run_page(site: Site) -> pn.Template:
    """Build the page at ``/run?id=``, for everyone with the run's address."""
    return _page(site, site.runs.find(address_value("id")), readonly=False)


def watch_page(site: Site) -> pn.Template:
    """Build the page at ``/watch?id=``, for viewers: they change nothing and keep nothing alive."""
    return _page(site, site.runs.find_watched(address_value("id")), readonly=True)


def _page(site: Site, hosted: Hosted | None, readonly: bool) -> pn.Template:
    if hosted is None:
        return frame(NONE[0], {"ground": Ground()}, NONE, site.logout)
    page = RunPage(site, hosted, readonly)
    return frame(hosted.past.title, page.places, (), site.logout)
