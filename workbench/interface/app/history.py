"""Past runs of a browser and their comparison, as part of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.analysis.against_reference import plain
from workbench.analysis.comparison import line_key
from workbench.common.units import counted
from workbench.interface.app.comparisons import HostedComparison
from workbench.interface.app.page import ChartPart, Ground, PastPart, Site
from workbench.interface.app.turns import Redrawing
from workbench.runs.history import (
    Past,
    beside_reference,
    comparison_note,
    is_one_task,
    label,
    loss_curves,
    of_one_task,
    reference_place,
)
from workbench.studies.comparison.deciding import deciding_charts
from workbench.studies.comparison.trials import Trial
from workbench.views.pages.figures import comparison

COMPARED = 4  # of the newest runs, until the reader chooses


class PastRuns:
    """The list, the table and the figure; they follow what happens to the runs: those of a browser,
    or those of a comparison, in its order and all of them ticked.
    """

    def __init__(
        self, site: Site, owner: str, ground: Ground, compared: HostedComparison | None = None
    ) -> None:
        self.site, self.ground, self._compared = site, ground, compared
        self.history = site.runs.history(owner)
        self.part = PastPart(self.heard)
        if compared is not None:
            self.part.tell(heading="The runs of this comparison")
        self.figure = ChartPart()
        self.ticked: list[str] | None = None  # None: the reader has not chosen
        self.reference = ""  # the run that the others are compared with; by default the first
        self._drawn: Any = None
        self._redrawing = Redrawing(site.turns, owner, self._refresh)
        ground.param.watch(lambda _: self.refresh(), "dark")
        self.part.follow(self.refresh)

    def heard(self, message: Mapping[str, Any]) -> None:
        kind, ids, id = message.get("type"), message.get("ids"), str(message.get("id", ""))
        if kind == "tick" and isinstance(ids, list):
            self.ticked = [str(one) for one in ids]
        elif kind == "reference":
            self.reference = id
        elif kind == "rename" and (past := self.history.find(id)) is not None:
            past.rename(str(message.get("name", "")))
            self._drawn = None  # its name stands in the charts, too
        elif kind == "delete" and self._compared is None:
            self.history.remove(id)
        else:
            return
        self.refresh()

    def refresh(self) -> None:
        """Look again, in another thread: a run that is just over has its events read once."""
        self._redrawing.ask()

    def _refresh(self) -> None:
        compared = self._compared
        pasts = [*self.history] if compared is None else compared.pasts
        if self.ticked is None:
            over = [past for past in pasts if past.over]
            chosen = of_one_task(over[-COMPARED:]) if compared is None else over
        else:
            chosen = [past for past in pasts if past.id in self.ticked]
        ids = {past.id for past in chosen}
        entries = [self._entry(past, past.id in ids) for past in pasts]
        if compared is None:
            entries.reverse()
        else:
            entries += [_waiting(one) for one in compared.trials if one.state == "waiting"]
        self.part.tell(
            runs=entries,
            names=self._names(chosen),
            table=self._table(chosen),
            note=comparison_note(chosen),
        )
        self._draw(chosen)

    def _names(self, chosen: list[Past]) -> list[dict[str, Any]]:
        """Return the heads of the table: each run's name, and how its line looks."""
        looks = line_key([label(past) for past in chosen], self.ground.theme)
        reference = reference_place(chosen, self.reference)
        return [
            {
                "id": past.id,
                "name": name,
                "colour": color,
                "dash": dash,
                "reference": place == reference and len(chosen) > 1,
            }
            for place, (past, (name, (color, dash))) in enumerate(
                zip(chosen, looks.items(), strict=True)
            )
        ]

    def _table(self, chosen: list[Past]) -> list[dict[str, Any]]:
        return plain(beside_reference(chosen, self.reference)) if chosen else []

    def _draw(self, chosen: list[Past]) -> None:
        """Draw the figure again where a run, its end or the ground has changed."""
        if not self.ground.known:
            return
        theme = self.ground.theme
        shown = [(past.id, past.over) for past in chosen]
        if self._drawn == (shown, theme):
            return
        self._drawn = shown, theme
        if not chosen or not is_one_task(chosen):
            self.figure.draw(None)
            return
        compared = self._compared
        measures = () if compared is None else compared.compared.measures
        charts = deciding_charts(chosen, measures, theme)
        self.figure.draw(comparison(loss_curves(chosen), theme, charts))

    def _entry(self, past: Past, ticked: bool) -> dict[str, Any]:
        summary = past.summary()
        return {
            "id": past.id,
            "name": label(past),
            "state": summary["state"],
            "words": self._words(past, summary),
            "href": f"./run?id={past.id}",
            "live": not past.over,
            "ticked": ticked,
            "kept": self._compared is not None,
        }

    def _words(self, past: Past, summary: Mapping[str, Any]) -> str:
        parts = [f"{summary['ranks']} rank{'s' * (summary['ranks'] > 1)}"]
        if summary["state"] != "starting":
            done, goal = summary["iterations"], summary["iterations_asked"]
            parts.append(
                f"{done:,} of {goal:,} iterations" if done < goal else counted(done, "iteration")
            )
        if summary["loss"] is not None:
            parts.append(f"loss {summary['loss']:.3f}")
        if summary["accuracy"] is not None:
            parts.append(f"{summary['accuracy']:.1%} right")
        hosted = self.site.runs.find(past.id)
        left = self.site.runs.seconds_alone(hosted) if hosted else None
        if left is not None:
            parts.append(f"no page shows it: it ends in {left:.0f} s")
        elif hosted and hosted.words:
            parts.append(hosted.words)
        return " · ".join(parts)


def _waiting(trial: Trial) -> dict[str, Any]:
    """Return the line of a run that has not started yet."""
    exp = trial.experiment
    words = f"{counted(exp.ranks, 'rank')} · {exp.length}"
    return {
        "id": "",
        "name": trial.name,
        "state": "waiting",
        "words": words,
        "href": "",
        "live": False,
        "ticked": False,
    }
