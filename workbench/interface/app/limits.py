"""The limits of one server for its runs, and the messages when they are reached.

Limits speak twice: on the bare fields of an experiment, before anything is planned with numbers
that came from outside (``check_fields``), and on its processes while they run
(``interface/app/runs.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.common.errors import WorkbenchError, short
from workbench.common.names import listed, nearest
from workbench.common.units import counted, print_size
from workbench.experiment.frozen_model import walk
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import known_traits, traits_of
from workbench.experiment.yaml_text import code_in
from workbench.interface.app.reserved import foretold, size_of_model, whole
from workbench.training.pipelines.schedule import flushes
from workbench.user_code.source import available, places_of

MOST_SHOWN = 10**15  # a larger number is not written out
_PLACE = re.compile(r"[/\\~\0]|^\.")  # what no name of a file beside the server has


class Refused(WorkbenchError):
    """A request that this server refuses, with the reason."""


@dataclass(frozen=True)
class Limits:
    """The names are those of the options of ``workbench serve``."""

    ranks: int = 16  # of one run
    runs: int = 4  # live at a time, of all owners
    minutes: float = 30.0  # that one run may last
    memory: int = 4_000_000_000  # bytes that the ranks of one run may hold and reserve together
    threads: int = 64  # computing threads of one run, over all its ranks
    rows: int = 50_000_000  # that one run may record
    grace: float = 15.0  # seconds after its last page has gone until a run's ranks end
    data: tuple[str, ...] = ()  # folders that tasks may read when a visitor names them
    launchers: tuple[str, ...] = ()  # that visitors may name besides "local", without options
    actions: int = 2_500  # forwards and backwards of a pipeline's schedule in an iteration
    tensors: int = 192  # of a tensor-parallel model: planning its split takes their square
    actions_of_all: int = 200_000  # the same of a whole run, where its schedule has no flush

    @property
    def words(self) -> str:
        return (
            f"Limits of this server: {counted(self.ranks, 'rank')}, {print_size(self.memory)} and "
            f"{self.long} per run; {counted(self.runs, 'run')} at a time."
        )

    @property
    def long(self) -> str:
        """The longest time that a run may last, in words."""
        return f"{self.minutes:g} minute{'s' * (self.minutes != 1)}"

    def check_names(self) -> None:
        """Raise WorkbenchError for a launcher or a place that the operator names and that is not
        there.
        """
        for name in self.launchers:
            if name not in (known := available("launchers")):
                raise WorkbenchError(
                    f"--launcher: there is no launcher {name!r}{nearest(name, known)}. Allowed: "
                    f"{listed(known)}"
                )
        for place in self.data:
            if not Path(place).exists():
                raise WorkbenchError(f"--data: there is no folder {place}; name one that exists")

    def check(self, exp: Experiment) -> None:
        """Raise Refused for an experiment that this server does not run."""
        self.check_fields({name: getattr(exp, name) for name in type(exp).model_fields})
        size = size_of_model(exp, self.memory // exp.ranks)
        if (model := exp.ranks * size.nbytes) > self.memory:
            raise Refused(
                f"This run's {counted(exp.ranks, 'rank')} would hold {gigabytes(model)} of model "
                f"and samples at the least, and {print_size(self.memory)} are the most here. "
                "Smaller task_options or fewer ranks take less. (--max-memory)"
            )
        if size.tensors > self.tensors and traits_of(exp.strategy).plans_tensors:
            raise Refused(
                f"This model has {size.tensors:,} tensors of parameters, and the server plans the "
                f"split of {self.tensors:,} at the most. Fewer layers take less time."
            )

    def check_fields(self, fields: Mapping[str, Any]) -> None:
        """Raise Refused for the fields of an Experiment that is still to be made. Nothing is
        computed here that takes longer for larger numbers; values that a field cannot have are left
        to the Experiment.
        """
        refuse_code(code_in(fields))
        self._check_launcher(fields.get("launcher"), fields.get("launcher_options"))
        for name in ("checkpoint", "resume"):
            if fields.get(name):
                raise Refused(
                    f"{name} names a folder of this machine, and this server neither writes nor "
                    "reads folders for visitors. Run it in a notebook, or with workbench run."
                )
        self._check_places(fields.get("task"), fields.get("task_options"))
        ranks = whole(fields.get("ranks"), 4)
        if ranks > self.ranks:
            raise Refused(
                f"This server gives a run up to {counted(self.ranks, 'rank')}, and this one asks "
                f"for {figure(ranks)}. (--max-ranks)"
            )
        threads = whole(fields.get("threads"), 1)
        if threads > 1 and ranks * threads > self.threads:
            raise Refused(
                f"This server gives a run up to {counted(self.threads, 'thread')}, and this one "
                f"asks for {ranks} x {figure(threads)} (ranks x threads). (--max-threads)"
            )
        self._check_links(fields.get("network"))
        if known_traits(str(fields.get("strategy"))).messages == "stages":
            self._check_schedule(fields, ranks)
        reserved = foretold(fields)
        if reserved > self.memory:
            raise Refused(
                f"This run's ranks would reserve up to {gigabytes(reserved)} for what travels "
                f"between them, and {print_size(self.memory)} are the most here. A smaller "
                "chunk_bytes or fewer ranks take less. (--max-memory)"
            )

    def _check_launcher(self, launcher: Any, options: Any) -> None:
        """Refuse what would start processes elsewhere than the operator allows."""
        allowed = ("local", *self.launchers)
        if launcher not in (None, *allowed):
            raise Refused(
                f"This server starts ranks by {listed(allowed)}, and this run asks for "
                f"{short(launcher)}. (--launcher)"
            )
        if options:
            raise Refused(
                "launcher_options name hosts and queues, and here those are the operator's: leave "
                "them out."
            )

    def _check_links(self, network: Any) -> None:
        """Refuse more links than there are pairs of ranks, and too many that differ."""
        read = network.get if isinstance(network, Mapping) else lambda name: getattr(network, name)
        links = () if network is None else read("links")
        most = self.ranks * (self.ranks - 1)
        if isinstance(links, Mapping) and len(links) > most:
            raise Refused(
                f"network.links has {len(links):,} links, and {counted(self.ranks, 'rank')} have "
                f"{most:,} at the most. (--max-ranks)"
            )

    def _check_schedule(self, fields: Mapping[str, Any], ranks: int) -> None:
        """Check the size of a schedule before it is built, since it is checked action by action."""
        options = fields.get("options")
        values = options if isinstance(options, Mapping) else {}
        microbatches = whole(values.get("microbatches"), 8)
        actions = 2 * ranks * microbatches * whole(values.get("stages_per_rank"), 1)
        what, most = "an iteration", self.actions
        if actions <= most and not flushes(values.get("schedule", "")):  # drawn up as a whole
            actions *= whole(fields.get("iterations"), 200)
            what, most = "all iterations, which this schedule needs at once", self.actions_of_all
        if actions > most:
            raise Refused(
                f"This pipeline's schedule has {figure(actions)} forwards and backwards in {what} "
                f"(2 x ranks x stages_per_rank x microbatches), and {most:,} are the most here."
            )

    def _check_places(self, task: Any, options: Any) -> None:
        """Refuse paths from visitors without looking whether they exist."""
        values = options if isinstance(options, Mapping) else {}
        places = [values[name] for name in places_of(task) if name in values]
        places += [one for one in walk(values) if isinstance(one, str) and _PLACE.search(one)]
        for one in places:
            if one not in self.data:
                named = listed(map(repr, self.data))
                raise Refused(
                    f"task_options: {short(one)} names a place of this machine. Of those, this "
                    f"server reads for visitors only what its operator has named: {named}. (--data)"
                )

    def time_over(self) -> str:
        return f"Its time is over: here a run lasts up to {self.long}. (--max-minutes)"

    def too_heavy(self, held: int) -> str:
        return (
            f"Its ranks held {held / 1e9:.2f} GB of memory, and {print_size(self.memory)} are the "
            "most here, so they were ended. Fewer ranks hold less. (--max-memory)"
        )

    def too_many_rows(self, rows: int) -> str:
        return (
            f"It had recorded {rows:,} rows, and {self.rows:,} are the most here, so its ranks "
            "were ended. Fewer iterations or larger chunks record less. (--max-rows)"
        )

    def left_alone(self) -> str:
        return f"Its last page had been closed for {self.grace:g} s, so its ranks were ended."

    def no_place(self, mine: int) -> str:
        """Return why no further run can start; ``mine`` of the live ones are this visitor's."""
        yours = f" {'One' if mine == 1 else mine} of them {'is' if mine == 1 else 'are'} yours."
        if self.runs == 1:
            yours = " It is yours."
        return (
            f"This server runs {counted(self.runs, 'run')} at a time, and that many are live now."
            f"{yours if mine else ''} Start again once one has ended. (--max-runs)"
        )


def figure(number: int) -> str:
    """Return a number for a sentence; a number of thousands of digits is not written out."""
    return f"{number:,}" if number < MOST_SHOWN else f"more than {MOST_SHOWN:,}"


def gigabytes(nbytes: int) -> str:
    """Return a size for a sentence, whatever its number is."""
    most = MOST_SHOWN // 10**9
    return f"{nbytes / 1e9:,.2f} GB" if nbytes < MOST_SHOWN else f"more than {most:,} GB"


def refuse_code(fields: Iterable[str]) -> None:
    """Raise Refused if any field carries code, as source or as a path to it."""
    if carrying := list(fields):
        raise Refused(
            "This server runs experiments that are data, never code, and this one carries code in "
            f"{listed(carrying)}. Run it from a notebook, or with `workbench run`."
        )
