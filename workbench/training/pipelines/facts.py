"""The facts of a pipeline that a page shows before it runs: the header's ``run.pipeline``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from workbench.training.pipelines import theory as pipeline_theory

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.training.pipelines.options import Options
    from workbench.training.pipelines.schedule import Schedule


def facts(exp: Experiment, config: Options, schedule: Schedule) -> str:
    """Return the facts as JSON.

    ``bubble``: of the plan with the pads, or with F, I and W equally long where there are none.
    ``rows``: empty without a flush, where they span the whole run.
    """
    pads = exp.pads_ns
    times = pipeline_theory.Times(*(ns * 1e-9 for ns in pads)) if pads else pipeline_theory.UNIT
    replicas = exp.ranks // schedule.ranks
    bubble = pipeline_theory.bubble(schedule, times) if schedule.flush else None
    return json.dumps(
        {
            "schedule": schedule.name,
            "flush": schedule.flush,
            "ranks": schedule.ranks,
            "replicas": replicas,
            "stages": schedule.stages,
            "microbatches": config.microbatches,
            "rank_of": schedule.rank_of,
            "rows": [[str(one) for one in row] for row in schedule.rows] if schedule.flush else [],
            "pads_ms": [ns / 1e6 for ns in pads] if pads else None,
            "bubble": bubble,
            "peaks": schedule.peaks,
            "axes": [["data", replicas], ["pipeline", schedule.ranks]],
        }
    )
