"""What an Experiment cannot be, beyond what its fields say one by one: each check, a SpecError."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from workbench import hosts, source
from workbench.collectives import refusal, takes_of
from workbench.errors import SpecError
from workbench.formulas.hierarchical import levels as most_even
from workbench.record import short, walk
from workbench.source import Source, listed, nearest, split_path

if TYPE_CHECKING:
    from workbench.spec import Experiment, Network

POLICIES = {
    "consistency": "consistency",
    "schedule": "schedules",
}  # options that name a file: where
GRIDS = ("schedule",)  # of them, those that may be given in place, as a text of several words

_TAKES = re.compile(r"^(def takes\b|(\w+\.)?takes\s*=)", re.MULTILINE)


def known(folder: str, prefix: str = "", also: tuple[str, ...] = ()) -> AfterValidator:
    """A name must be a file of the folder or one of ``also``, a path must lead to a definition."""

    def check(value: str | Source) -> str | Source:
        if isinstance(value, Source):
            return value
        if place := split_path(value):
            names = source.defined(source.text_of(folder, value), str(place[0]))
            if place[1] not in names:
                near = nearest(place[1], names)
                raise SpecError(f"{place[0]} defines no {place[1]}{near}. It has: {listed(names)}")
            return value
        names = [*source.available(folder, prefix), *also]
        if value not in names:
            raise SpecError(
                f"there is no such file in {folder}/{nearest(value, names)}. Allowed: "
                f"{listed(names)}; or a path such as 'mine.py:Name', or your own function or class"
            )
        return value

    return AfterValidator(check)


def check_ranks(exp: Experiment) -> None:
    if exp.strategy == "sequential" and exp.ranks != 1:
        raise SpecError(
            f"Experiment.ranks = {exp.ranks}: strategy 'sequential' is one process, so ranks=1. "
            "For more ranks take strategy='data_parallel'"
        )
    check_levels(exp.network, exp.ranks, "Experiment.network")
    for (sender, receiver), _ in exp.network.links.items():
        if max(sender, receiver) >= exp.ranks:
            raise SpecError(
                f'Experiment.network.links["{sender}->{receiver}"]: there is no rank '
                f"{max(sender, receiver)}; ranks={exp.ranks} are 0 to {exp.ranks - 1}"
            )


def check_levels(network: Network, ranks: int, where: str = "Network") -> None:
    """Hosts have these ranks, all of them. Raises SpecError."""
    levels = network.levels
    if levels and prod(levels) != ranks:
        would = hosts.resized(levels, ranks) or tuple(most_even(ranks))
        raise SpecError(
            f"{where}.levels = {levels}: {hosts.words(levels)} are {prod(levels)} ranks, and "
            f"ranks={ranks}. Such as levels={would}"
        )


def check_faults(exp: Experiment) -> None:
    seen: set[tuple[object, ...]] = set()
    for index, fault in enumerate(exp.faults):
        where = f"Experiment.faults[{index}] = {fault!r}"
        rank = getattr(fault, "rank", 0)
        if rank >= exp.ranks:
            last = exp.ranks - 1
            raise SpecError(f"{where}: there is no rank {rank}; ranks={exp.ranks} are 0 to {last}")
        at = getattr(fault, "at_iteration", 0)
        if at >= exp.iterations:
            raise SpecError(f"{where}: never happens; iterations are 0 to {exp.iterations - 1}")
        once = (fault.fault, rank) if fault.fault != "freeze" else ("freeze", rank, at)
        if once in seen:
            raise SpecError(
                f"{where}: there is another {type(fault).__name__} like it before; one is enough"
            )
        seen.add(once)


def check_algorithm(exp: Experiment, *, trusted: bool = False) -> None:
    """An all-reduce takes this number of ranks. What is the user's own runs only if ``trusted``."""
    value = exp.all_reduce
    own = not isinstance(value, str) or bool(split_path(value))
    if value == "auto" or exp.ranks == 1 or own != trusted:
        return
    if not _TAKES.search(source.text_of("collectives", value, "all_reduce_")):
        return  # it takes any number
    takes = takes_of(source.load("collectives", value, "all_reduce", "all_reduce_"))
    if told := refusal(takes, exp.ranks):
        raise SpecError(
            f"Experiment.all_reduce: {source.shown(value)} does not run on {exp.ranks} ranks: it "
            f"takes {told}"
        )


def check_device(exp: Experiment) -> None:
    if exp.backend == "nccl":
        if not exp.device.startswith("cuda"):
            raise SpecError(
                f"Experiment.device = {exp.device!r}: backend 'nccl' moves GPU memory only, so "
                "device='cuda'; on CPUs take backend='workbench' or 'gloo'"
            )
        if ":" in exp.device and exp.ranks > 1:
            raise SpecError(
                f"Experiment.device = {exp.device!r}: NCCL wants a GPU of its own for each of the "
                f"{exp.ranks} ranks, so device='cuda'; sharing one needs backend='workbench'"
            )
    if exp.momentum and exp.optimizer != "sgd":
        raise SpecError(
            f"Experiment.momentum = {exp.momentum}: momentum belongs to optimizer='sgd'; "
            f"{exp.optimizer} has averages of its own, so momentum=0"
        )


def check_pads(exp: Experiment) -> None:
    """Pads by the kind of computing: only a pipeline tells them apart."""
    given = exp.pad_compute
    if given is None or isinstance(given, str) or exp.strategy == "pipeline":
        return
    what = source.shown(exp.strategy)
    raise SpecError(
        f"Experiment.pad_compute = {short(given)}: Pads are of a pipeline's forward, input and "
        f"weight gradients, which strategy {what} does not tell apart: write one duration, such as "
        f"pad_compute={given.forward!r}, or take strategy='pipeline'"
    )


def check_options(exp: Experiment) -> None:
    _check_keys(exp.task_options, "task_options", "tasks", exp.task, "Task")
    _check_keys(exp.options, "options", "strategies", exp.strategy, "Config")
    if any(isinstance(one, Source) for one in walk(exp.task_options)):
        raise SpecError(
            "Experiment.task_options: a task takes plain values, no functions or classes"
        )
    for option, folder in POLICIES.items():
        value, names = exp.options.get(option), source.available(folder)
        if option in GRIDS and isinstance(value, str) and len(value.split()) > 1:
            continue
        if isinstance(value, str) and not split_path(value) and names and value not in names:
            near = nearest(value, names)
            raise SpecError(
                f"Experiment.options.{option} = {value!r}{near}. Allowed: {listed(names)}"
            )
    if isinstance(exp.strategy, str) and not split_path(exp.strategy):
        checks = "check" in source.defined(source.text_of("strategies", exp.strategy), exp.strategy)
        if exp.options or checks:
            config = configure(source.load("strategies", exp.strategy, "Config"), exp.options)
        if checks:
            source.load("strategies", exp.strategy, "check")(exp, config)


def prepare(exp: Experiment) -> dict[str, str]:
    """What the strategy works out in the driver before any process starts, by name: it is stored
    with the run and told to every rank. Runs the user's code where an option is code. SpecError.
    """
    check_task(exp)
    check_algorithm(exp, trusted=True)
    if not isinstance(exp.strategy, str) or split_path(exp.strategy):
        return {}
    if "prepare" not in source.defined(source.text_of("strategies", exp.strategy), exp.strategy):
        return {}
    config = configure(source.load("strategies", exp.strategy, "Config"), exp.options)
    prepared: dict[str, str] = source.load("strategies", exp.strategy, "prepare")(exp, config)
    return prepared


def check_task(exp: Experiment) -> None:
    """What a task of ours needs of this machine, such as files: where it has a ``check``, with its
    options. Not in the constructor: a spec can be read where it cannot be run. Raises SpecError.
    """
    if not isinstance(exp.task, str) or split_path(exp.task):
        return
    if "check" in source.defined(source.text_of("tasks", exp.task), exp.task):
        try:
            source.load("tasks", exp.task, "check")(**exp.task_options)
        except SpecError:
            raise
        except (TypeError, ValueError) as error:
            told = short(dict(exp.task_options))
            raise SpecError(f"Experiment.task_options = {told}: {error}") from None


def _check_keys(
    options: Mapping[str, Any], field: str, folder: str, value: str | Source, holder: str
) -> None:
    """Refuse options that the task or the strategy's Config does not have."""
    if not options:
        return
    place = None if isinstance(value, Source) else split_path(value)
    if folder == "tasks" and (
        own := value.name if isinstance(value, Source) else place and place[1]
    ):
        holder = own
    code, what = source.text_of(folder, value), source.shown(value)
    if folder == "strategies" and holder not in source.defined(code, what):
        raise SpecError(
            f"Experiment.{field} = {short(dict(options))}: {what} takes none. A strategy of your "
            "own takes options by a dataclass Config: def train(job, config: Config)"
        )
    names = source.keywords(code, holder, what)
    for key in options:
        if names is not None and key not in names:
            near = nearest(key, names)
            raise SpecError(
                f"Experiment.{field}: {what} has no option {key!r}{near}. It has: {listed(names)}"
            )


C = TypeVar("C")


def configure(config: type[C], options: Mapping[str, Any]) -> C:
    """A strategy's Config made from ``options``: each value checked against its field's type.

    Lists become tuples where the field says so. A Source is passed on as it is. Raises SpecError.
    """
    values = dict(options)
    hints = get_type_hints(config)
    for key, value in options.items():
        if key not in hints:
            near = nearest(key, hints)
            raise SpecError(f"Experiment.options has no {key!r}{near}. It has: {listed(hints)}")
        if not isinstance(value, Source):
            try:
                values[key] = _adapter(hints[key]).validate_python(value)
            except ValidationError as error:
                why = error.errors()[0]["msg"].replace("Input should be", "must be")
                raise SpecError(f"Experiment.options.{key} = {short(value)}: {why}") from None
    try:
        return config(**values)
    except (TypeError, ValueError) as error:
        raise SpecError(f"Experiment.options = {short(dict(options))}: {error}") from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a record or dataclass has its own configuration
        return TypeAdapter(hint)
