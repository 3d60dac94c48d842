"""Names of strategies, tasks and algorithms in the fields of an Experiment."""

from __future__ import annotations

from pydantic import AfterValidator

from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest
from workbench.user_code import source
from workbench.user_code.source import Source, split_path


def known(folder: str, prefix: str = "", also: tuple[str, ...] = ()) -> AfterValidator:
    """Return a check: a name is a file of ``folder`` or in ``also``; a path leads to a definition.

    ``prefix``: of the file names.
    """

    def check(value: str | Source) -> str | Source:
        if isinstance(value, Source):
            return value
        if place := split_path(value):
            definitions = source.names_defined(source.text_of(folder, value), str(place[0]))
            if place[1] not in definitions:
                near = nearest(place[1], definitions)
                raise SpecError.at(
                    (),
                    f"{place[0]} defines no {place[1]}{near}. It has: {listed(definitions)}",
                    allowed=definitions,
                )
            return value
        names = (*source.available(folder, prefix), *also)
        if value not in names:
            raise SpecError.at(
                (),
                f"there is no such name{nearest(value, names)}. Allowed: "
                f"{listed(names)}; or a path such as 'mine.py:Name', or your own function or class",
                allowed=names,
            )
        return value

    return AfterValidator(check)
