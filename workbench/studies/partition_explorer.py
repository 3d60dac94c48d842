"""A partition with a slider for each number: ``wb.partition.explore()``, in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import ipywidgets

from workbench.common.errors import SpecError
from workbench.studies.samplers import SAMPLERS
from workbench.views.jupyter import ModelStage
from workbench.views.pages.samples_page import samples_page

WORDS = {
    "samples": "samples",
    "batch_size": "minibatch",
    "ranks": "ranks",
    "epochs": "epochs",
    "seed": "seed",
    "shuffle": "shuffle",
    "drop_last": "drop_last",
    "set_epoch": "set_epoch",
    "sampler": "sampler",
}


class Partition(Protocol):
    """A partition, as far as it is shown here."""

    @property
    def options(self) -> tuple[tuple[str, Any], ...]: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    @property
    def words(self) -> str: ...
    def _repr_html_(self) -> str: ...


Deal = Callable[..., Partition]  # ``wb.partition``


class Explore(ipywidgets.VBox):
    """Sliders, and the partition that they make. ``partition`` is the one on show."""

    def __init__(self, deal: Deal, options: Mapping[str, Any]) -> None:
        self._deal = deal
        self.partition: Partition = deal(**options)
        self.controls = _controls(dict(self.partition.options))
        self._stage = ModelStage(*_page(self.partition, 1))
        self._message, self._number = ipywidgets.HTML(), 1
        for control in self.controls.values():
            control.observe(lambda _: self._turn(), "value")
        sliders, others = (
            [c for name, c in self.controls.items() if (name in _RANGES) == is_range]
            for is_range in (True, False)
        )
        wrap = ipywidgets.Layout(flex_flow="row wrap")
        rows = [ipywidgets.HBox(some, layout=wrap) for some in (sliders, others)]
        super().__init__([*rows, self._message, self._stage])

    @property
    def options(self) -> dict[str, Any]:
        """The values of the controls."""
        return {name: control.value for name, control in self.controls.items()}

    def _turn(self) -> None:
        """Show the partition of the new values, or why it is impossible."""
        is_workbench = self.controls["sampler"].value == "workbench"
        self.controls["drop_last"].disabled = self.controls["set_epoch"].disabled = is_workbench
        options = self.options | ({"drop_last": False, "set_epoch": True} if is_workbench else {})
        try:
            self.partition = self._deal(**options)
        except SpecError as error:
            self._message.value = f"<b>{error}</b>"
            return
        self._message.value, self._number = "", self._number + 1
        self._stage.turn(*_page(self.partition, self._number))

    def __repr__(self) -> str:
        return f"Explore({self.partition!r})"


_RANGES = {"samples": 96, "batch_size": 64, "ranks": 16, "epochs": 4}  # from 1


def _controls(options: dict[str, Any]) -> dict[str, Any]:
    """Return a control for each option, by name. A slider reaches at least as far as its value."""
    wide = {"style": {"description_width": "72px"}, "layout": {"width": "270px"}}
    widgets: dict[str, Any] = {}
    for name, most in _RANGES.items():
        value = options[name]
        widgets[name] = ipywidgets.IntSlider(
            value, 1, max(most, value), description=WORDS[name], continuous_update=False, **wide
        )
    widgets["sampler"] = ipywidgets.Dropdown(
        options=list(SAMPLERS), value=options["sampler"], description=WORDS["sampler"], **wide
    )
    widgets["seed"] = ipywidgets.BoundedIntText(
        options["seed"],
        0,
        2**31 - 1,
        description="seed",
        style={"description_width": "40px"},
        layout={"width": "130px"},
    )
    for name in ("shuffle", "drop_last", "set_epoch"):
        widgets[name] = ipywidgets.Checkbox(
            options[name], description=WORDS[name], indent=False, layout={"width": "110px"}
        )
    return widgets


def _page(partition: Partition, number: int) -> tuple[Any, str, str]:
    page = samples_page(partition.facts, partition.words, number=number)
    return page, repr(partition), partition._repr_html_()


def explore(deal: Deal, options: Mapping[str, Any]) -> Explore:
    """Return sliders for what ``deal`` makes. ``options``: where they stand at first."""
    return Explore(deal, options)
