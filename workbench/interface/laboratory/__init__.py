"""``wb.lab()``: a form, the live stage, charts and past runs, as widgets of a notebook.

    lab = wb.lab()                  begins with a preset
    lab = wb.lab(my_experiment)     or with an experiment of yours, code of your own included

``lab.run`` is the newest run, ``lab.experiment`` what the form says, ``lab.history`` the past runs:
what is clicked together can be gone on with in code.
"""

from __future__ import annotations

from workbench.common.arguments import checked
from workbench.experiment.spec import Experiment
from workbench.interface.laboratory.panel import Lab


@checked
def lab(experiment: Experiment | None = None) -> Lab:
    """Return a laboratory to show in a notebook, its form filled in with ``experiment`` (left out:
    the first preset). ``close()`` ends its threads and its live run.

    >>> wb.lab(wb.Experiment(strategy="ddp"))
    """
    return Lab(experiment)
