"""The start page: one click starts a good default; presets, the form, past runs and comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import panel as pn

from workbench.common.errors import SpecError, WorkbenchError, short
from workbench.experiment.spec import Experiment
from workbench.interface import form
from workbench.interface.app.compare import Questions
from workbench.interface.app.history import PastRuns
from workbench.interface.app.jobs import listed
from workbench.interface.app.limits import Refused
from workbench.interface.app.page import (
    FormPart,
    Ground,
    JobsPart,
    Site,
    address_value,
    browser,
    frame,
    presence,
)
from workbench.interface.app.thumbnails import addresses

TITLE = "Distributed training workbench"
LEAD = (
    "See distributed training happen",
    "Four processes on this machine train LeNet-5 on handwritten digits and average their gradients"
    " around a ring.",
    "Every chunk they send, every wait and every computation is recorded where it happens and drawn"
    " while it happens.",
    "Hold the ranks, go on chunk by chunk, slow a link, kill a rank; then turn a knob and compare.",
)
FIRST_ITERATIONS = 2_000  # of the default: long enough to look around and to lay hands on it
FILLED_AGAIN = "The fields were filled again meanwhile. Look at them, and start again."
LONGEST_TEXT = 4_000  # characters of one value: a form is filled in by hand
LONGEST_NAME = 100  # characters
_NAMES = ("strategy", "task", "all_reduce", "options.consistency", "options.schedule")
_PATH = re.compile(r"\.py\b")


class StartPage:
    """One browser page's form and list of runs."""

    def __init__(self, site: Site) -> None:
        self.site, self.owner = site, browser(site.cookie)
        self.presets = {  # but those that write a folder, which a server does not for visitors
            name: one for name, one in form.presets().items() if one.experiment.checkpoint is None
        }
        self.form = FormPart(self.heard)
        self.ground = Ground()
        self.questions = Questions(site, self.owner)
        self.past = PastRuns(site, self.owner, self.ground)
        self.base = ""  # the preset that the fields were filled from
        self.filled = 0
        first = next(iter(self.presets.values()))
        self.form.tell(
            fields=[asdict(one) for one in form.fields()],
            presets=[
                {
                    "name": one.name,
                    "words": one.words,
                    "group": one.group,
                    "pictures": addresses(one.name),
                }
                for one in self.presets.values()
            ],
            limits=site.runs.limits.words,
            first=first.name,
            busy="",
            refused="",
            answered=0,
        )
        self.fill(first.experiment, first.name)
        if link := address_value("spec"):
            self.fill_from_link(link)

    # ---- what the form shows

    def fill(self, exp: Experiment, chosen: str = "") -> None:
        """Put an experiment into the fields."""
        self.filled, self.base = self.filled + 1, chosen
        self.form.tell(values=form.values(exp), filled=self.filled)
        self.show(exp)

    def fill_from_link(self, link: str) -> None:
        """Put in what the address carries: names and numbers, never code."""
        try:
            self.fill(form.from_link(link, self.site.runs.limits.check_fields))
        except WorkbenchError as error:
            self.form.tell(refused=str(error))

    def show(self, exp: Experiment) -> None:
        """Show what runs if it is started now, and what it is called."""
        title = self.title(exp)
        self.form.tell(
            wrong={},
            refused="",
            code=form.as_program(exp),
            link=link_of(exp),
            title=title,
            chosen=title if title in self.presets else "",
        )

    def title(self, exp: Experiment) -> str:
        """Return the preset's name where the fields are as it filled them; "" where none did."""
        preset = self.presets.get(self.base)
        unchanged = preset is not None and preset.experiment == exp
        return self.base if unchanged or not self.base else f"{self.base}, changed"

    # ---- what the reader does

    def heard(self, message: Mapping[str, Any]) -> None:
        """Take a message from the form; the answer carries the message's number."""
        kind = message.get("type")
        preset = self.presets.get(str(message.get("name")))
        if kind == "preset" and preset:
            self.fill(preset.experiment, preset.name)
        elif kind == "run" and preset:
            self.start(preset.experiment, preset.name)
        elif kind == "first":
            first = next(iter(self.presets.values()))
            self.start(first.experiment.replace(iterations=FIRST_ITERATIONS), first.name)
        elif kind in ("values", "start") and message.get("filled") == self.filled:
            self.take(message.get("values"), start=kind == "start")
        elif kind == "start":  # its fields are those of before: that is not what they are named by
            self.form.tell(refused=FILLED_AGAIN)
        if isinstance(number := message.get("n"), int):
            self.form.tell(answered=number)

    def take(self, values: Any, start: bool) -> None:
        """Take the fields as they are now: show the experiment that they make, or what is wrong
        with them.
        """
        try:
            exp = form.experiment(plain(values), self.site.runs.limits.check_fields)
        except form.FormError as error:
            self.form.tell(wrong=error.fields, refused="", code=form.NO_CODE)
            return
        except WorkbenchError as error:
            self.form.tell(wrong={}, refused=str(error))
            return
        self.show(exp)
        if start:
            self.start(exp, self.title(exp))

    def start(self, exp: Experiment, title: str) -> None:
        """Start a run and go to its page; say in words why not."""
        if self.form.state["busy"]:
            return
        self.form.tell(busy="Starting the ranks …", refused="")

        def work() -> None:
            try:
                hosted = self.site.runs.start(exp, self.owner, title)
            except (WorkbenchError, OSError) as error:
                self.form.tell(busy="", refused=str(error))
            else:
                self.form.go(f"./run?id={hosted.id}")

        self.site.work(work)


def plain(values: Any) -> dict[str, Any]:
    """Return the values of a form from a browser, if a form can hold them.

    Raises Refused: nothing that names code is even looked for on this machine.
    """
    if not isinstance(values, Mapping):
        raise Refused("This is not a form's values.")
    fields = form.fields()
    if len(values) > len(fields):
        raise Refused(f"A form has {len(fields)} fields, and these are {len(values):,} values.")
    choices = {one.name: one.choices for one in fields if one.kind == "choice"}
    for name, value in values.items():
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise Refused(f"{short(name)}: a form has no field of this name.")
        if not isinstance(value, str | int | float | bool | None):
            raise Refused(f"{name}: a form holds texts and numbers.")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise Refused(f"{name}: that is too long a text ({len(value):,} characters).")
        if isinstance(value, str) and _PATH.search(value):
            raise Refused(
                f"{name}: this server runs experiments that are data, never code, so a path to "
                "Python code is refused. Run it from a notebook, or with `workbench run`."
            )
        if name in _NAMES and value not in choices.get(name, ()):
            raise Refused(f"{name}: it is one of {', '.join(choices.get(name, ()))}.")
    return dict(values)


def link_of(exp: Experiment) -> str:
    """Return the experiment as part of an address; "" where it is too long for one."""
    try:
        return form.to_link(exp)
    except SpecError:
        return ""


def start_page(site: Site) -> pn.Template:
    """Build the page at ``/``."""
    page = StartPage(site)
    leave = site.runs.visit(page.owner, presence())
    pn.state.on_session_destroyed(lambda _: leave())
    pn.state.onload(site.opened)
    places: dict[str, Any] = {
        "form": page.form,
        "comparisons": page.questions.part,
        "past": page.past.part,
        "figure": page.past.figure,
        "ground": page.ground,
    }
    if site.jobs.allowed:
        jobs = JobsPart()
        jobs.follow(lambda: jobs.tell(jobs=listed(site)))
        places = {"form": page.form, "jobs": jobs, **places}
    return frame(TITLE, places, LEAD, site.logout)
