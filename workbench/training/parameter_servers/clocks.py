"""The interface of a consistency policy: the clocks that it sees, and the question it answers.

    iteration c     begins when the policy says ``may_start(worker, c, clocks)``, for c = 0, 1, ...
    accepted[w]     iterations of worker w whose push the server has accepted: w's clock
    c - slowest     how far worker w would lead the slowest if it began iteration c now

BSP allows no lead, ASP any lead, SSP a lead of up to ``staleness``. A lost worker is not in
``Clocks``, so no worker waits for it. Each server keeps its own table and asks its own policy.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, get_type_hints

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.configure import configure
from workbench.user_code import source
from workbench.user_code.source import Source

if TYPE_CHECKING:
    from workbench.training.parameter_servers.options import Options

RULE = "consistency rule"  # of a run's metadata
MayStart = Callable[[int, int, "Clocks"], bool]


@dataclass(frozen=True)
class Clocks:
    """A server's table of its live workers' clocks."""

    accepted: Mapping[int, int]  # worker's rank -> its iterations whose push was accepted
    pushes: Mapping[int, tuple[int, ...]]  # worker's rank -> times of its last two pushes, ns

    @property
    def slowest(self) -> int:
        """The lowest clock."""
        return min(self.accepted.values())

    @property
    def fastest(self) -> int:
        """The highest clock."""
        return max(self.accepted.values())


class Policy:
    """A consistency policy: decides when a worker may start its next iteration.

    A subclass must define ``may_start``; everything else has the defaults below.
    """

    synchronous: bool = False  # gradients of one clock make one update, in order of worker
    bound: int | None = None  # the largest lead over the slowest; None: no bound
    lead: int | None = None  # the largest lead without a grant, where a controller grants more
    waits: bool = True  # False: no worker ever waits for another

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        """Return whether ``worker`` may begin ``iteration`` now. Pure; asked again after every
        push.
        """
        raise NotImplementedError

    def pushed(self, worker: int, clocks: Clocks) -> None:
        """Update the policy after a push of ``worker``, already counted in ``clocks``.

        Controllers such as DSSP override it.
        """

    @property
    def slack(self) -> dict[int, int]:
        """Iterations currently granted beyond the lower bound, by worker. Only DSSP grants any."""
        return {}


class Asks(Protocol):
    """The method that a user-defined policy class must have."""

    def may_start(self, worker: int, iteration: int, clocks: Clocks, /) -> bool: ...


class UsersOwn(Policy):
    """Wraps a user's function, or object with ``may_start``, as a ``Policy``."""

    def __init__(self, policy: Asks | MayStart) -> None:
        self._policy = policy
        self._ask = cast(MayStart, getattr(policy, "may_start", policy))
        self.synchronous = bool(getattr(policy, "synchronous", False))
        self.bound, self.lead = getattr(policy, "bound", None), getattr(policy, "lead", None)
        self.waits = bool(getattr(policy, "waits", True))
        _must_take(self._ask, 3, f"{_name(policy)}: may_start", "(worker, iteration, clocks)")
        if pushed := getattr(policy, "pushed", None):
            _must_take(pushed, 2, f"{_name(policy)}: pushed", "(worker, clocks)")

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return bool(self._ask(worker, iteration, clocks))

    def pushed(self, worker: int, clocks: Clocks) -> None:
        if pushed := getattr(self._policy, "pushed", None):
            pushed(worker, clocks)

    @property
    def slack(self) -> dict[int, int]:
        return getattr(self._policy, "slack", {})


def policy(value: Any, options: Mapping[str, Any] | None = None) -> Policy:
    """Return a new policy, without history, for ``value``.

    ``value``: a name of ``consistency/``, a path, a Source, a class, a function ``may_start(worker,
    iteration, clocks)``, or an object with that method. A class receives those of ``options`` that
    its ``__init__`` names; as ``config: Config``, a dataclass, those that are its fields. Raises
    SpecError.
    """
    candidate = value
    if isinstance(value, str | Source):
        candidate = source.load("consistency", value, str(getattr(value, "name", value)).upper())
    if isinstance(candidate, type):
        candidate = candidate(**_named_by(candidate, options or {}))
    if isinstance(candidate, Policy):
        return candidate
    if not callable(getattr(candidate, "may_start", candidate)):
        names = source.available("consistency")
        raise SpecError.at(
            "consistency",
            f"is not a policy: write a name ({listed(names)}), a function may_start(worker, "
            "iteration, clocks), or a class with such a method",
            value,
            allowed=names,
        )
    return UsersOwn(candidate)


def policy_options(config: Options, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a policy's class may ask for: some of the strategy's, and its own
    among ``options``, those of the experiment.
    """
    own = {name: value for name, value in options.items() if not hasattr(config, name)}
    return own | {
        "staleness": config.staleness,
        "staleness_max": config.staleness_max,
        "mode": config.dssp_mode,
    }


def rule_of(consistency: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what pages, laws and charts are told of a policy. Runs its code.

    ``low``, ``high``: the largest lead without a grant, and at all; None: no bound. ``together``:
    the gradients of a clock make one update. ``waits``: False where no worker waits for another.
    """
    one = policy(consistency, options)
    low = one.bound if one.lead is None else one.lead
    return {"low": low, "high": one.bound, "together": one.synchronous, "waits": one.waits}


UNKNOWN = {"low": None, "high": None, "together": False, "waits": True}


def rule_stored(metadata: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``rule_of`` says of a stored run: as its driver stored it, else of a policy by
    name. Raises ValueError for options that no policy takes.
    """
    if stored := metadata.get(RULE):
        return {**UNKNOWN, **json.loads(stored)}
    value = options.get("consistency")
    if value not in source.available("consistency"):
        return UNKNOWN
    given = {**options, "mode": options.get("dssp_mode", "strict")}
    try:
        return rule_of(value, given)
    except SpecError as error:
        raise ValueError(str(error)) from None


def _named_by(kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``options`` that are parameters of ``kind``'s constructor."""
    options = {**options, **_configured(kind, options)}
    named = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    needed = [name for name, parameter in named.items() if parameter.default is parameter.empty]
    if missing := [name for name in needed if name not in options]:
        raise SpecError(
            f"consistency {kind.__name__} needs {listed(missing)}, which is not an option of the "
            f"strategy: give it a default. Options: {listed(options)}"
        )
    return {name: options[name] for name in named if name in options}


def _configured(kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return "config": what the class takes under that name, made from the options that are its
    fields; {} for one that takes none.
    """
    if "config" not in inspect.signature(kind).parameters:
        return {}
    config = get_type_hints(kind.__init__).get("config")  # type: ignore[misc]
    if not isinstance(config, type):
        return {}
    names = get_type_hints(config)
    given = {name: value for name, value in options.items() if name in names}
    return {"config": configure(config, given)}


def _must_take(function: Callable[..., Any], count: int, name: str, shape: str) -> None:
    """Raise SpecError unless ``function`` can be called with ``count`` positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        raise SpecError(
            f"consistency {name} takes {inspect.signature(function)}; it is called with {shape}"
        ) from None


def _name(policy: object) -> str:
    """Return a policy's name for messages."""
    return str(getattr(policy, "__name__", type(policy).__name__))
