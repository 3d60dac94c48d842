"""``wb.drift``: is it a bug, or rounding?

    wb.drift()                        data parallel training beside five ways to get it wrong
    wb.drift(train)                   a strategy of your own: train(job, config)
    wb.drift(loop)                    a plain loop: loop(rank, size, model, minibatches)
    print(wb.drift(loop).wait())      what it found, in words

Each is run in float32 and in float64 beside sequential training, and ends after 1, 2, 5, 10 ...
updates (a run each: then its parameters are those after exactly so many). A loop that is not
sequential training, because it clips or decays, say, also runs on one rank: what it must equal is
itself. judge.py has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Count, Moments, Ranks, Theme, checked
from workbench.common.errors import SpecError
from workbench.studies.drift.findings import Findings
from workbench.studies.drift.plan import AT
from workbench.studies.drift.subjects import Training, subjects_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Report(Findings):
    """The report of ``drift``, live while it runs. It shows itself in a notebook."""

    @checked
    def figure(self, theme: Theme = "light") -> go.Figure:
        """Return losses and parameters by iteration, float32 beside float64 on the same scale."""
        from workbench.studies.drift.charts import figure

        return figure(self.losses, self.table, [one.name for one in self.subjects], self.at, theme)

    def __str__(self) -> str:
        from workbench.studies.drift.summary import text

        return text(self)

    def __repr__(self) -> str:
        return f"Report({self.words})"

    def _repr_html_(self) -> str:
        from workbench.studies.drift.display import html

        return html(self)

    def _shower(self) -> Callable[[Any], None]:
        from workbench.studies.drift.display import show

        return show


@checked
def drift(
    subject: Training | None = None,
    *,
    ranks: Ranks | None = None,
    iterations: Count | None = None,
    mutants: bool = True,
    at: Moments | None = None,
    resumes_at: Count | None = None,
    **fields: Any,
) -> Report:
    """Compare distributed training with sequential training; return at once (``wait()`` waits).

    subject     a strategy's name or path, train(job, config), a plain loop(rank, size, model,
                minibatches) that may also take optimizer and loss, an Experiment, or name -> one
                of these; default: data_parallel
    ranks       2, or the experiment's own
    iterations  100, or the experiment's own
    mutants     whether five known bugs run beside it
    resumes_at  an iteration at which training goes on from a checkpoint: the bugs of resuming run
                beside it too (the optimizer's state, the sampler's position or the random
                generators are not restored). A subject that shows one is named without it as well
    at          numbers of updates after which parameters are compared; default: 1, 2, 5, 10, 20,
                50, 100
    fields      more fields of Experiment: task, batch_size (default: one that the ranks cannot
                share evenly), seed, optimizer, lr, momentum, options ...

    Raises SpecError for invalid arguments, before anything runs.

    >>> print(wb.drift("data_parallel", ranks=2, iterations=20).wait())
    """
    more = {"ranks": ranks, "iterations": iterations}
    options = {**fields, **{name: value for name, value in more.items() if value is not None}}
    if "dtype" in options:
        raise SpecError("drift runs everything in float32 and in float64: leave out dtype")
    result = subjects_of(subject, mutants, options, resumes_at)
    last = result[0].experiment.iterations
    if resumes_at is not None and resumes_at >= last:
        raise SpecError(f"resumes_at = {resumes_at}: training has {last} iterations, from 0 on")
    marks = sorted({*(AT if at is None else at), last})
    if marks[0] < 1:
        raise SpecError(f"at = {at!r}: numbers of updates, from 1 on")
    return Report(result, [k for k in marks if k <= last])
