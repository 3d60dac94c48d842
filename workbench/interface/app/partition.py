"""The page at ``/partition``: which sample goes to which rank, with a slider for each number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import panel as pn

from workbench.common.errors import SpecError
from workbench.common.units import counted
from workbench.interface.app.page import Ground, PartitionPart, Site, Stage, frame
from workbench.studies.partition import partition
from workbench.studies.samplers import SAMPLERS
from workbench.views.pages.samples_page import samples_page

TITLE = "Which sample goes to which rank?"
LEAD = (
    TITLE,
    "One process takes its samples minibatch by minibatch; several share each minibatch out like"
    " cards. No ranks run for this: torch's own samplers are asked.",
)
MOST = {"samples": 2000, "batch_size": 512, "ranks": 64, "epochs": 8, "seed": 2**31 - 1}
MOST_WORK = 40_000  # ids and parts of minibatches that a page's samples come to: some 50 ms
START: dict[str, Any] = {
    "samples": 10,
    "batch_size": 4,
    "ranks": 4,
    "epochs": 1,
    "seed": 0,
    "shuffle": False,
    "drop_last": False,
    "set_epoch": True,
    "sampler": "distributed",
}


class PartitionPage:
    """One browser page's sliders and picture."""

    def __init__(self) -> None:
        self.form, self.stage, self.ground = PartitionPart(self.heard), Stage(), Ground()
        self.number = 0
        self.form.tell(values=START, most=MOST, samplers=SAMPLERS, refused="")
        self.show(START)

    def heard(self, message: Mapping[str, Any]) -> None:
        """Take a message from the form."""
        if message.get("type") != "values":
            return
        try:
            self.show(_checked(message.get("values")))
        except SpecError as error:
            self.form.tell(refused=str(error))

    def show(self, options: Mapping[str, Any]) -> None:
        """Draw what the options make. Raises SpecError."""
        if options["sampler"] == "workbench":  # it has none of these
            options = {**options, "drop_last": False, "set_epoch": True}
        result = partition(**options)
        self.number += 1
        self.stage.draw(samples_page(result.facts, result.words, number=self.number))
        changed = {name: value for name, value in options.items() if value != _defaults()[name]}
        arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        self.form.tell(refused="", code=f"wb.partition({arguments})")


@cache
def _defaults() -> Mapping[str, Any]:
    """Return what ``wb.partition()`` takes: asked for once a page is open, since it needs torch."""
    return dict(partition().options)


def _checked(values: Any) -> dict[str, Any]:
    """Return the fields from a browser, if a form can hold them. Raises SpecError."""
    if not isinstance(values, Mapping) or set(values) != set(START):
        raise SpecError("these are not the form's values")
    for name, value in values.items():
        if type(value) is not type(START[name]):
            raise SpecError(f"{name} = {value!r}: not such a value")
        if name in MOST and not (name != "seed") <= value <= MOST[name]:
            raise SpecError(f"{name} = {value}: from {int(name != 'seed')} to {MOST[name]:,}")
    if (work := _work(values)) > MOST_WORK:
        raise SpecError(
            f"samples = {values['samples']:,} in {counted(values['epochs'], 'epoch')} over "
            f"{counted(values['ranks'], 'rank')} come to {work:,} ids and parts of minibatches, "
            f"and {MOST_WORK:,} are the most that this page draws: take fewer"
        )
    return dict(values)


def _work(values: Mapping[str, Any]) -> int:
    """Count the ids, and the parts of a minibatch on a rank, to be dealt out and drawn; a whole
    minibatch takes as long as four of them.
    """
    samples, ranks = values["samples"], values["ranks"]
    minibatches = -(-samples // values["batch_size"])
    every = ranks * samples // 3  # torch's sampler of each rank goes through all of the samples
    parts = ranks * minibatches if values["sampler"] == "workbench" else every
    return int(values["epochs"] * (samples + parts + 4 * minibatches))


def partition_page(site: Site) -> pn.Template:
    """Build the page at ``/partition``."""
    page = PartitionPage()
    pn.state.on_session_destroyed(lambda _: page.stage.leave())
    places = {"form": page.form, "stage": page.stage, "ground": page.ground}
    return frame(TITLE, places, LEAD, site.logout)
