"""``wb.lab()``: a form, the live stage, charts and past runs, as widgets of a notebook.

    lab = wb.lab()                  begins with a preset
    lab = wb.lab(my_experiment)     or with an experiment of yours, code of your own included

``lab.run`` is the newest run, ``lab.experiment`` what the form says, ``lab.history`` the past runs:
what is clicked together can be gone on with in code.
"""

from __future__ import annotations

from workbench.laboratory.panel import Lab
from workbench.spec import Experiment


def lab(experiment: Experiment | None = None) -> Lab:
    """A laboratory to show in a notebook, its form filled in with ``experiment`` (left out: the
    first preset). ``close()`` ends its threads and what it still runs.
    """
    return Lab(experiment)
