"""The start page: one click starts a good default; presets, the form, past runs and comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import panel as pn

from workbench import form
from workbench.app.limits import Refused
from workbench.app.page import FormPart, Ground, Site, asked, browser, frame, presence
from workbench.app.past import PastRuns
from workbench.errors import WorkbenchError
from workbench.spec import Experiment

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
LONGEST_TEXT = 4_000  # characters of one value: a form is filled in by hand
_NAMES = ("strategy", "task", "all_reduce", "options.consistency", "options.schedule")
_PATH = re.compile(r"\.py\b")


class StartPage:
    """One browser page's form and list of runs."""

    def __init__(self, site: Site) -> None:
        self.site, self.owner = site, browser(site.cookie)
        self.presets = form.presets()
        self.form = FormPart(self.heard)
        self.ground = Ground()
        self.past = PastRuns(site, self.owner, self.ground)
        self.base = ""  # the preset that the fields were filled from
        self.filled = 0
        first = next(iter(self.presets.values()))
        self.form.tell(
            fields=[asdict(one) for one in form.fields()],
            presets=[
                {"name": one.name, "words": one.words, "group": one.group}
                for one in self.presets.values()
            ],
            limits=site.runs.limits.words,
            first=f"Start: {first.name.lower()}",
            busy="",
            refused="",
        )
        self.fill(first.experiment, first.name)
        if link := asked("spec"):
            self.fill_from_link(link)

    # ---- what the form shows

    def fill(self, exp: Experiment, chosen: str = "") -> None:
        """Put an experiment into the fields."""
        self.filled, self.base = self.filled + 1, chosen
        self.form.tell(values=form.values(exp), filled=self.filled, chosen=chosen)
        self.show(exp)

    def fill_from_link(self, link: str) -> None:
        """Put in what the address carries: names and numbers, never code."""
        try:
            self.fill(form.from_link(link))
        except WorkbenchError as error:
            self.form.tell(refused=str(error))

    def show(self, exp: Experiment) -> None:
        """Show what runs if it is started now."""
        self.form.tell(wrong={}, refused="", code=form.as_program(exp), link=form.to_link(exp))

    # ---- what the reader does

    def heard(self, message: Mapping[str, Any]) -> None:
        """A message of the form's."""
        kind = message.get("type")
        if kind == "preset" and (preset := self.presets.get(str(message.get("name")))):
            self.fill(preset.experiment, preset.name)
        elif kind == "first":
            first = next(iter(self.presets.values()))
            self.start(first.experiment.replace(iterations=FIRST_ITERATIONS), first.name)
        elif kind in ("values", "start"):
            self.take(message.get("values"), start=kind == "start")

    def take(self, values: Any, start: bool) -> None:
        """The fields as they are now: show what they make, or what is wrong with them."""
        try:
            exp = form.experiment(plain(values))
        except form.FormError as error:
            self.form.tell(wrong=error.fields, refused="")
            return
        except WorkbenchError as error:
            self.form.tell(wrong={}, refused=str(error))
            return
        preset = self.presets.get(self.base)
        unchanged = preset is not None and preset.experiment == exp
        self.form.tell(chosen=self.base if unchanged else "")
        self.show(exp)
        if start:
            self.start(exp, self.base if unchanged or not self.base else f"{self.base}, changed")

    def start(self, exp: Experiment, title: str) -> None:
        """Start a run and go to its page; say in words why not."""
        if self.form.told["busy"]:
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
    """Values of a form as they came from a browser, if they are what a form can hold.

    Raises Refused: nothing that names code is even looked for on this machine.
    """
    if not isinstance(values, Mapping):
        raise Refused("This is not a form's values.")
    choices = {one.name: one.choices for one in form.fields() if one.kind == "choice"}
    for name, value in values.items():
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
    return {str(name): value for name, value in values.items()}


def start_page(site: Site) -> pn.Template:
    """The page at ``/``."""
    page = StartPage(site)
    leave = site.runs.visit(page.owner, presence())
    pn.state.on_session_destroyed(lambda _: leave())
    places = {"form": page.form, "past": page.past.part, "figure": page.past.figure,
              "ground": page.ground}  # fmt: skip
    return frame(TITLE, places, LEAD, site.logout)
