"""A prediction that can be proven by running."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from workbench.analysis.critical_path.what_if import Prediction, Retimer
from workbench.common.arguments import AtOnce, checked
from workbench.runs.displays import display


@dataclass(frozen=True, repr=False)
class Provable(Prediction):
    """A Prediction, with the record that it was made from, and the experiment."""

    retimer: Retimer | None = field(default=None, compare=False)
    experiment: Any = field(default=None, compare=False)

    @checked
    def prove(self, repeats: AtOnce = 2) -> Any:
        """Run the experiment and the changed one in alternation, ``repeats`` times each, and return
        prediction and measurement side by side: ``table``, ``measured_ms``, ``error``. It returns
        when all of them are over: see studies/proof.py.

        Raises SpecError for a change that no experiment can make, and what a run fails with.
        """
        return display("proof")(self, repeats)


def provable(prediction: Prediction, retimer: Retimer, experiment: Any) -> Provable:
    """Return a prediction that can be proven."""
    given = {one.name: getattr(prediction, one.name) for one in fields(prediction)}
    return Provable(**given, retimer=retimer, experiment=experiment)
