"""The page at ``/partition``: which sample goes to which rank, with a slider for each number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import panel as pn

from workbench.app.page import Ground, PartitionPart, Site, Stage, frame
from workbench.errors import SpecError
from workbench.partitions.partition import SAMPLERS, partition
from workbench.views.samples_page import samples_page

TITLE = "Which sample goes to which rank?"
LEAD = (
    TITLE,
    "One process takes its samples minibatch by minibatch; several share each minibatch out like"
    " cards. No ranks run for this: torch's own samplers are asked.",
)
MOST = {"samples": 2000, "batch_size": 512, "ranks": 64, "epochs": 8, "seed": 2**31 - 1}
START: dict[str, Any] = {
    "samples": 10, "batch_size": 4, "ranks": 4, "epochs": 1, "seed": 0, "shuffle": False,
    "drop_last": False, "set_epoch": True, "sampler": "distributed",
}  # fmt: skip


class PartitionPage:
    """One browser page's sliders and picture."""

    def __init__(self) -> None:
        self.form, self.stage, self.ground = PartitionPart(self.heard), Stage(), Ground()
        self.number = 0
        self.form.tell(values=START, most=MOST, samplers=SAMPLERS, refused="")
        self.show(START)

    def heard(self, message: Mapping[str, Any]) -> None:
        """A message of the form's."""
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
        made = partition(**options)
        self.number += 1
        self.stage.draw(samples_page(made.facts, made.words, number=self.number))
        changed = {name: value for name, value in options.items() if value != DEFAULTS[name]}
        given = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        self.form.tell(refused="", code=f"wb.partition({given})")


DEFAULTS = dict(partition().options)


def _checked(values: Any) -> dict[str, Any]:
    """What came from a browser, if a form can hold it. Raises SpecError."""
    if not isinstance(values, Mapping) or set(values) != set(START):
        raise SpecError("these are not the form's values")
    for name, value in values.items():
        if type(value) is not type(START[name]):
            raise SpecError(f"{name} = {value!r}: not such a value")
        if name in MOST and not (name != "seed") <= value <= MOST[name]:
            raise SpecError(f"{name} = {value}: from {int(name != 'seed')} to {MOST[name]:,}")
    return dict(values)


def partition_page(site: Site) -> pn.Template:
    """The page at ``/partition``."""
    page = PartitionPage()
    pn.state.on_session_destroyed(lambda _: page.stage.leave())
    places = {"form": page.form, "stage": page.stage, "ground": page.ground}
    return frame(TITLE, places, LEAD, site.logout)
