"""What a consistency policy of a parameter server sees, and what it is asked.

    iteration c     begins when the policy says ``may_start(worker, c, clocks)``, for c = 0, 1, ...
    accepted[w]     iterations of worker w whose push the server has taken in: w's clock
    c - slowest     how far worker w would lead the slowest if it began iteration c now

BSP lets nobody lead, ASP everybody by anything, SSP by ``staleness``. A worker that was lost is in
no ``Clocks``: nobody waits for it. Each server keeps a table of its own and asks for itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from workbench import source
from workbench.errors import SpecError
from workbench.source import Source, listed

MayStart = Callable[[int, int, "Clocks"], bool]


@dataclass(frozen=True)
class Clocks:
    """A server's table of its live workers."""

    accepted: Mapping[int, int]  # worker's rank -> its iterations whose push was taken in
    pushes: Mapping[int, tuple[int, ...]]  # worker's rank -> times of its last two pushes, ns

    @property
    def slowest(self) -> int:
        """The least clock."""
        return min(self.accepted.values())

    @property
    def fastest(self) -> int:
        """The greatest clock."""
        return max(self.accepted.values())


class Policy:
    """When a worker may go on. Only ``may_start`` must be written; the rest has these defaults."""

    synchronous: bool = False  # gradients of one clock make one update, in order of worker
    bound: int | None = None  # the furthest that it lets lead the slowest; None: no bound

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        """May ``worker`` begin ``iteration`` now? Pure; asked again after every push."""
        raise NotImplementedError

    def pushed(self, worker: int, clocks: Clocks) -> None:
        """A push of ``worker`` was taken in, and is counted in ``clocks``: for controllers."""

    @property
    def slack(self) -> dict[int, int]:
        """Iterations now granted beyond the lower bound, by worker. Only DSSP grants some."""
        return {}


class Asks(Protocol):
    """What a class of the user's own must have."""

    def may_start(self, worker: int, iteration: int, clocks: Clocks, /) -> bool: ...


class UsersOwn(Policy):
    """A user's function, or object with ``may_start``, as one of ours."""

    def __init__(self, own: Asks | MayStart) -> None:
        self._own = own
        self._ask = cast(MayStart, getattr(own, "may_start", own))
        self.synchronous = bool(getattr(own, "synchronous", False))
        self.bound = getattr(own, "bound", None)
        _must_take(self._ask, 3, f"{_name(own)}: may_start", "(worker, iteration, clocks)")
        if pushed := getattr(own, "pushed", None):
            _must_take(pushed, 2, f"{_name(own)}: pushed", "(worker, clocks)")

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return bool(self._ask(worker, iteration, clocks))

    def pushed(self, worker: int, clocks: Clocks) -> None:
        if pushed := getattr(self._own, "pushed", None):
            pushed(worker, clocks)

    @property
    def slack(self) -> dict[int, int]:
        return getattr(self._own, "slack", {})


def policy(value: Any, options: Mapping[str, Any] | None = None) -> Policy:
    """The policy that ``value`` means, new and without a past.

    A name of ``consistency/``, a path, a Source, a class, a function ``may_start(worker, iteration,
    clocks)``, or an object that has it. A class gets those of ``options`` that its ``__init__``
    names. Raises SpecError.
    """
    made = value
    if isinstance(value, str | Source):
        made = source.load("consistency", value, str(getattr(value, "name", value)).upper())
    if isinstance(made, type):
        made = made(**_named_by(made, options or {}))
    if isinstance(made, Policy):
        return made
    if not callable(getattr(made, "may_start", made)):
        raise SpecError(
            f"consistency = {value!r} is no policy: write a name ("
            f"{listed(source.available('consistency'))}), a function may_start(worker, iteration, "
            "clocks), or a class with such a method"
        )
    return UsersOwn(made)


def _named_by(kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``options`` that ``kind`` is made with."""
    named = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    needed = [name for name, one in named.items() if one.default is one.empty]
    if missing := [name for name in needed if name not in options]:
        raise SpecError(
            f"consistency {kind.__name__} needs {listed(missing)}, which is no option of the "
            f"strategy: give it a default. There is: {listed(options)}"
        )
    return {name: options[name] for name in named if name in options}


def _must_take(function: Callable[..., Any], count: int, who: str, shape: str) -> None:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        raise SpecError(
            f"consistency {who} takes {inspect.signature(function)}; it is called with {shape}"
        ) from None


def _name(own: object) -> str:
    return str(getattr(own, "__name__", type(own).__name__))
