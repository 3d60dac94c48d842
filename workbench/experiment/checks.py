"""Checks of an Experiment beyond those of its single fields; each raises a SpecError."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from workbench.collectives import refusal, takes_of
from workbench.common import topology
from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest
from workbench.common.units import duration_ns
from workbench.common.user_warnings import warn_user
from workbench.experiment.configure import config_of, configure
from workbench.experiment.fields import Fields
from workbench.experiment.frozen_model import walk
from workbench.experiment.network import Network
from workbench.experiment.no_effect import without_effect
from workbench.experiment.options import POLICIES, POLICY, own_options, policies_with, policy_named
from workbench.experiment.survivors import check_from_memory, check_survivors, ranks_of
from workbench.experiment.traits import hook, is_by_name, traits_of, with_traits
from workbench.formulas.hierarchical import levels as most_even
from workbench.user_code import source
from workbench.user_code.source import Source, split_path

GRIDS = ("schedule",)  # of POLICIES, those that may be given in place, as a text of several words

_TAKE_OPTIONS = {
    "strategies": "A strategy of your own takes options by a dataclass Config: "
    "def train(job, config: Config)",
    "launchers": "A launcher of your own takes options by a dataclass Config: self.config",
}

FEW = 1 << 20  # ranks whose factors are found at once

_TAKES = re.compile(r"^(def takes\b|(\w+\.)?takes\s*=)", re.MULTILINE)


def check_ranks(exp: Fields) -> None:
    try:
        check_levels(exp.network, exp.ranks)
    except SpecError as error:
        raise error.within("Experiment", "network") from None
    for (sender, receiver), _ in exp.network.links.items():
        if max(sender, receiver) >= exp.ranks:
            raise SpecError.at(
                ("network", "links", f"{sender}->{receiver}"),
                f"there is no rank {max(sender, receiver)}; ranks={exp.ranks} are 0 to "
                f"{exp.ranks - 1}",
            )


def check_durations(exp: Fields) -> None:
    """Check that durations are more than 0, where 0 would leave no time for anything."""
    for name, why, such in (
        ("timeout", "every wait would be an error at once", "30 s"),
        ("quorum_timeout", "every rank would be late at once", "1 s"),
        ("stop_after", "the run would stop at once", "2 min"),
    ):
        value = getattr(exp, name)
        if value is not None and duration_ns(value) <= 0:
            raise SpecError.at(name, f"{why}; it must be more than 0, such as {such!r}", value)


def check_levels(network: Network, ranks: int) -> None:
    """Raise SpecError unless the hosts of ``network`` have these ranks, all of them."""
    levels = network.levels
    if levels and prod(levels) != ranks:
        would = topology.resize(levels, ranks)
        if not would and ranks <= FEW:
            would = tuple(most_even(ranks))
        raise SpecError.at(
            "levels",
            f"{topology.words(levels)} are {prod(levels)} ranks, and ranks={ranks}",
            levels,
            allowed=[would] if would else (),
            remedy=f"Such as levels={would}" if would else "",
        ).within("Network")


def check_bad_minibatch(exp: Fields) -> None:
    """Check that the strategy looks at its gradients before they are summed, where it is to."""
    if exp.bad_minibatch == "keep":
        return
    if traits_of(exp.strategy).skips == "no":
        fitting = with_traits(lambda traits: traits.skips != "no")
        raise SpecError.at(
            "bad_minibatch",
            f"strategy {source.shown(exp.strategy)} does not look at gradients before it sums "
            f"them: take 'keep', or one of the strategies {listed(fitting)}. One of your own "
            'does where its file says TRAITS = Traits(skips="together"): see '
            "workbench/rank/attempts.py",
            exp.bad_minibatch,
        )


def check_digests(exp: Fields) -> None:
    """Check that replicas are to be equal, and have others to be compared with."""
    if not exp.digest_every:
        return
    if exp.ranks == 1:
        why = "one rank has no other to be compared with: leave it out, or take ranks=3"
        raise SpecError.at("digest_every", why, exp.digest_every)
    if traits_of(exp.strategy).replicas != "equal":
        fitting = with_traits(lambda traits: traits.replicas == "equal")
        raise SpecError.at(
            "digest_every",
            f"with strategy {source.shown(exp.strategy)} ranks do not hold the same parameters: "
            f"leave it out, or take one of {listed(fitting)}",
            exp.digest_every,
        )


def check_algorithm(exp: Fields, *, trusted: bool = False) -> None:
    """Check that an all-reduce takes this number of ranks; run user code only if ``trusted``."""
    value = exp.all_reduce
    is_users = not isinstance(value, str) or bool(split_path(value))
    if value == "auto" or exp.ranks == 1 or is_users != trusted:
        return
    if not _TAKES.search(source.text_of("collectives", value, "all_reduce_")):
        return  # it takes any number
    takes = takes_of(source.load("collectives", value, "all_reduce", "all_reduce_"))
    if answer := refusal(takes, exp.ranks):
        raise SpecError.at(
            "all_reduce",
            f"{source.shown(value)} does not run on {exp.ranks} ranks: it takes {answer}",
        )


def check_device(exp: Fields) -> None:
    if exp.backend == "nccl":
        if not exp.device.startswith("cuda"):
            raise SpecError.at(
                "device",
                "backend 'nccl' moves GPU memory only, so device='cuda'; on CPUs take "
                "backend='workbench' or 'gloo'",
                exp.device,
            )
        if ":" in exp.device and exp.ranks > 1:
            raise SpecError.at(
                "device",
                f"NCCL wants a GPU of its own for each of the {exp.ranks} ranks, so "
                "device='cuda'; sharing one needs backend='workbench'",
                exp.device,
            )
    if exp.momentum and exp.optimizer != "sgd":
        raise SpecError.at(
            "momentum",
            f"momentum belongs to optimizer='sgd'; {exp.optimizer} has a state of its own, so "
            "momentum=0",
            exp.momentum,
        )


def check_pads(exp: Fields) -> None:
    """Check that pads by the kind of computing are given for a pipeline only."""
    pads = exp.pad_compute
    if pads is None or isinstance(pads, str) or traits_of(exp.strategy).messages == "stages":
        return
    what, fitting = source.shown(exp.strategy), with_traits(lambda one: one.messages == "stages")
    raise SpecError.at(
        "pad_compute",
        "Pads are of a pipeline's forward, input and weight gradients, which strategy "
        f"{what} does not tell apart: write one duration, such as pad_compute={pads.forward!r}, "
        f"or take strategy={' or '.join(map(repr, fitting))}",
        pads,
    )


def check_emulation(exp: Fields) -> None:
    """Check that links are not emulated where the backend cannot. Raises SpecError."""
    if exp.backend != "workbench" and exp.network != type(exp).model_fields["network"].default:
        why = (
            f"backend={exp.backend!r} emulates no links: leave it out, or take backend='workbench'"
        )
        raise SpecError.at("network", why)


def check_options(exp: Fields) -> None:
    _check_keys(exp.task_options, "task_options", "tasks", exp.task, "Task")
    own = own_options(exp.strategy, exp.options)
    _check_keys(exp.options, "options", "strategies", exp.strategy, "Config", [*own])
    _check_keys(exp.launcher_options, "launcher_options", "launchers", exp.launcher, "Config")
    if any(isinstance(one, Source) for one in walk(exp.task_options)):
        raise SpecError.at("task_options", "a task takes plain values, no functions or classes")
    for option, folder in POLICIES.items():
        value, names = exp.options.get(option), source.available(folder)
        if option in GRIDS and isinstance(value, str) and len(value.split()) > 1:
            continue
        if isinstance(value, str) and not split_path(value) and names and value not in names:
            near = nearest(value, names)
            why = f"there is no such name{near}. Allowed: {listed(names)}"
            raise SpecError.at(f"options.{option}", why, value, allowed=names)
    if is_by_name(exp.strategy):
        check = hook(exp.strategy, "check")
        if exp.options or check:
            config = config_of(exp)
        if check:
            check(exp, config)
    _check_policy(exp, own)


def _check_policy(exp: Fields, own: Collection[str]) -> None:
    """Check the values of a policy's own options, if it is a file of the folder: that of another
    does not run here.
    """
    policy = policy_named(exp.strategy, exp.options) if own else None
    if policy is not None and is_by_name(policy):
        config = source.load_module(POLICY, policy).Config
        configure(config, {name: exp.options[name] for name in own if name in exp.options})


def check_recovery(exp: Fields) -> None:
    """Check that the policy fits: it needs to hear how ranks end, and groups of ours."""
    if not exp.recovers:
        return
    for name, needed in (("backend", "workbench"), ("launcher", "local")):
        if (value := getattr(exp, name)) != needed:
            raise SpecError.at(
                "recovery",
                f"{source.shown(exp.recovery)} needs {name}={needed!r}, and this experiment has "
                f"{name}={source.shown(value)}",
                exp.recovery,
            )
    if ranks := ranks_of(exp.recovery):
        check_from_memory(exp, ranks)
    if isinstance(exp.recovery, str) and not split_path(exp.recovery):
        names = source.names_defined(source.text_of("recovery", exp.recovery), exp.recovery)
        if "check" in names:
            source.load("recovery", exp.recovery, "check")(exp)


def prepare(exp: Fields) -> dict[str, str]:
    """Return what the strategy works out in the driver before any process starts, by name: it is
    stored with the run and told to every rank. Runs the user's code where an option is code. Warns
    of fields and options that have no effect. Raises SpecError.
    """
    for sentence in without_effect(exp):
        warn_user(sentence)
    try:
        return _prepare(exp)
    except SpecError as error:
        raise error.within("Experiment") from None


def _prepare(exp: Fields) -> dict[str, str]:
    check_task(exp)
    check_algorithm(exp, trusted=True)
    check_launcher(exp)
    check_gpus(exp)
    if not is_by_name(exp.strategy):
        _check_own_strategy(exp)
    prepared = hook(exp.strategy, "prepare")
    return {} if prepared is None else prepared(exp, config_of(exp))


def _check_own_strategy(exp: Fields) -> None:
    """Run the checks of a strategy by path, which the constructor must not run."""
    if check := hook(exp.strategy, "check"):
        check(exp, config_of(exp))
    if exp.recovers and (ranks := ranks_of(exp.recovery)):
        check_survivors(exp, ranks)


def check_task(exp: Fields) -> None:
    """Check what a built-in task needs of this machine, such as files, with its ``check``.

    Not in the constructor: a spec can be read where it cannot be run. Raises SpecError.
    """
    if not isinstance(exp.task, str) or split_path(exp.task):
        return
    if "check" in source.names_defined(source.text_of("tasks", exp.task), exp.task):
        try:
            source.load("tasks", exp.task, "check")(**exp.task_options)
        except SpecError:
            raise
        except (TypeError, ValueError) as error:
            raise SpecError.at("task_options", str(error), dict(exp.task_options)) from None


def check_launcher(exp: Fields) -> None:
    """Check what a launcher needs of this machine, such as a program, with its file's ``check``.

    Not in the constructor: a spec can be read where it cannot be run. Raises SpecError.
    """
    if not isinstance(exp.launcher, str) or split_path(exp.launcher):
        return
    names = source.names_defined(source.text_of("launchers", exp.launcher), exp.launcher)
    if "Config" in names:
        config = configure(
            source.load("launchers", exp.launcher, "Config"),
            exp.launcher_options,
            "launcher_options",
        )
        if "check" in names:
            source.load("launchers", exp.launcher, "check")(exp, config)


def check_gpus(exp: Fields) -> None:
    """Check that this machine has the GPU that ranks of the local launcher are to use.

    Not in the constructor: a spec can be read where it cannot be run. Raises SpecError.
    """
    if exp.launcher != "local" or not exp.device.startswith("cuda"):
        return
    import torch

    count = torch.cuda.device_count()
    _, _, index = exp.device.partition(":")
    if int(index or 0) >= count:
        there = f"cuda:0 to cuda:{count - 1}" if count else "no GPU"
        raise SpecError.at(
            "device",
            f"torch {torch.__version__} finds {there} here; 'cpu' and 'auto' run anywhere",
            exp.device,
        )


def _check_keys(
    options: Mapping[str, Any],
    field: str,
    folder: str,
    value: str | Source,
    holder: str,
    more: Sequence[str] = (),
) -> None:
    """Refuse options that the task, the strategy's Config or ``more`` does not have."""
    if not options:
        return
    place = None if isinstance(value, Source) else split_path(value)
    if folder == "tasks" and (
        name := value.name if isinstance(value, Source) else place and place[1]
    ):
        holder = name
    code, what = source.text_of(folder, value), source.shown(value)
    if holder == "Config" and holder not in source.names_defined(code, what):
        why = f"{what} takes none. {_TAKE_OPTIONS[folder]}"
        raise SpecError.at(field, why, dict(options))
    known = source.keywords(code, holder, what)
    for key in options:
        if known is not None and key not in (names := [*known, *more]):
            near = nearest(key, names)
            of = policies_with(key) if folder == "strategies" and POLICY in known else ()
            near += f": it is one of {POLICY} {listed(map(repr, of))}" if of else ""
            why = f"{what} has no option {key!r}{near}. It has: {listed(names)}"
            raise SpecError.at(field, why, allowed=names)
