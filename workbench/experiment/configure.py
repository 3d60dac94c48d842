"""The Config of a strategy, a policy or a launcher, made from an experiment's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest
from workbench.experiment.fields import Fields
from workbench.experiment.frozen_model import plain
from workbench.experiment.options import own_options
from workbench.experiment.traits import hook
from workbench.user_code.source import Source

C = TypeVar("C")


def config_of(exp: Fields) -> Any:
    """Return the strategy's Config for the options; None where it has none. Runs its code."""
    config = hook(exp.strategy, "Config")
    return None if config is None else configure(config, strategy_options(exp))


def strategy_options(exp: Fields) -> dict[str, Any]:
    """Return the options without those of a policy's own."""
    own = own_options(exp.strategy, exp.options)
    return {name: value for name, value in exp.options.items() if name not in own}


def configure(config: type[C], options: Mapping[str, Any], field: str = "options") -> C:
    """Return the Config of a strategy, a policy or a launcher, made from ``options``: each value is
    checked against its field's type. Lists become tuples where the field says so. A Source is
    passed on as it is. ``field``: of the Experiment. Raises SpecError.
    """
    values = dict(options)
    hints = get_type_hints(config)
    for key, value in options.items():
        if key not in hints:
            near = nearest(key, hints)
            why = f"there is no option {key!r}{near}. It has: {listed(hints)}"
            raise SpecError.at(field, why, allowed=hints).within("Experiment")
        if not isinstance(value, Source):
            try:
                values[key] = _adapter(hints[key]).validate_python(value)
            except ValidationError as error:
                why = plain(error.errors()[0]["msg"])
                wrong = SpecError.at((field, key), why, value)
                raise wrong.within("Experiment") from None
    try:
        return config(**values)
    except SpecError as error:
        raise error.within("Experiment", field) from None
    except (TypeError, ValueError) as error:  # of a Config of the user's own
        wrong = SpecError.at(field, str(error), dict(options))
        raise wrong.within("Experiment") from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a record or dataclass has its own configuration
        return TypeAdapter(hint)
