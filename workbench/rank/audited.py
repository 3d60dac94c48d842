"""A rank of an experiment that is audited: the strategy trains as in a run, within plain groups.

``wb.audit`` starts it as a script (``Experiment.audit``). It forks where it makes its group, so all
that costs time stands before. Nothing is recorded, no fault strikes, no driver steers.
"""

from __future__ import annotations

import torch.distributed as dist

from workbench.collectives import takes_of, users_own
from workbench.experiment.checks import prepare
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import traits_of
from workbench.process_group.session import Session, use
from workbench.rank.job import Job
from workbench.rank.main import code_of, train
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import READY, Control
from workbench.user_code.source import load, split_path


def main(text: str, rank: int) -> None:
    """Train as this rank of the experiment whose JSON this is."""
    exp = Experiment.from_json(text)
    control = Control.create(exp.ranks)  # of this rank alone
    for one in range(exp.ranks):
        control.set_rank(one, READY, 1)
    prepared, code = prepare(exp), code_of(exp)
    functions, name = {}, exp.all_reduce
    if not isinstance(name, str) or split_path(name):
        function = load("collectives", name, "all_reduce")
        name = function.__name__
        functions["all_reduce", name] = users_own(function, takes_of(function))
    session = Session(
        Recorder.off(rank),
        control=control,
        slot_bytes=exp.chunk_bytes,
        all_reduce=name,
        functions=functions,
        native=exp.backend != "workbench",
    )
    use(session)
    dist.init_process_group("workbench")
    job = Job(
        exp,
        code.task,
        rank,
        session,
        control,
        prepared,
        traits=traits_of(exp.strategy),
        run="audit",
    )
    train(job, code)
    dist.destroy_process_group()
