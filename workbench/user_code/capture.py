"""The source that a function or class needs in order to run elsewhere, as one piece.

Rank processes never import the caller's ``__main__``: a class that was typed into a notebook cell
does not exist there. So its text travels, together with everything that it names, recursively:

    a function or class of the user's own      its definition, decorators included
    a module, function or class of a library   the import that brings it in
    a plain constant, or tuples, lists,        name = literal
    sets and dicts of all these
    an object of a dataclass of all these      name = Config(lr=0.1, hidden=[32])
    a module of the user's own (helpers.f)     helpers = SimpleNamespace(f=f), what is used of it

Anything else (an open file, a tensor, an object with a state) is refused by name: it has no source.
Order: what runs while a definition is made (decorators, base classes, defaults) comes before it;
what its functions look up when they are called may come after.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from workbench.common import syntax
from workbench.common.errors import SpecError
from workbench.common.origins import import_of, is_installed, is_users_own, submodule
from workbench.user_code.constants import (
    fields_of,
    is_plain,
    kind_of,
    literal,
    same_constant,
    short,
)
from workbench.user_code.definitions import Definition, find
from workbench.user_code.names import (
    WithoutAnnotations,
    attributes_of,
    globals_of,
    refuse_own_imports,
)

LARGEST_CONSTANT = 100_000  # characters: more than this is data, to be loaded by the task itself
_OF_EVERY_MODULE = {"__name__", "__doc__", "__spec__", "__loader__", "__package__", "__builtins__"}


def write_out(obj: Any) -> tuple[str, str]:
    """Return (name, code): ``code`` run in an empty module leaves there ``obj`` under ``name``.

    Raises SpecError naming what cannot travel, its type, and what to do.
    """
    name = getattr(obj, "__name__", None)
    if isinstance(obj, type) or callable(obj):
        if name == "<lambda>":
            raise SpecError("a lambda has no name to travel under: write it with def")
        if isinstance(name, str) and not inspect.ismethod(obj):
            closure = _Closure()
            try:
                closure.add(name, obj, f"the {type(obj).__name__} {name}")
            except RecursionError:
                raise SpecError(
                    f"{name} uses a constant that holds itself, or is nested too deeply to be "
                    f"written out: make it inside {name}"
                ) from None
            last = _takes(closure, name, obj)
            return name, closure.text(name) + last
    raise SpecError(
        f"{short(obj)} is a {kind_of(obj)}: only a function or a class can travel to the ranks as "
        "source. Write it with def or class at the top of a cell or file, and pass that."
    )


def _takes(closure: _Closure, name: str, obj: Any) -> str:
    """Return the line that gives an algorithm its ``takes`` (see collectives); it travels too."""
    takes = getattr(obj, "takes", None) if inspect.isfunction(obj) else None
    if not callable(takes):
        return ""
    title = getattr(takes, "__name__", "<lambda>")
    if title == "<lambda>":
        raise SpecError(f"{name}.takes has no name to travel under: write it with def")
    closure.add(title, takes, f"{name}.takes")
    return f"\n\n{name}.takes = {title}\n"


@dataclass
class _Statement:
    """One statement of the traveling code, and the names that it needs."""

    text: str
    now: set[str] = field(default_factory=set)  # while it runs
    later: set[str] = field(default_factory=set)  # once its functions are called
    constant: bool = False  # a literal


class _Closure:
    """Everything that travels: ``meaning`` of each name, and the ``parts`` that bring it about."""

    def __init__(self) -> None:
        self.meaning: dict[str, object] = {}
        self.parts: dict[str, _Statement] = {}
        self.imports: set[str] = set()
        self.members: dict[str, dict[str, str]] = {}  # of modules of the user's own
        self.postponed = (
            False  # does some definition stand under `from __future__ import annotations`?
        )

    def add(self, name: str, value: object, by: str, uses: Iterable[tuple[str, ...]] = ()) -> None:
        """Let ``name`` mean ``value``. ``uses``: the attributes read of it, when it is a module."""
        known = name in self.meaning
        if known and not same_constant(self.meaning[name], value):
            raise SpecError(
                f"{by} uses {name}, which already stands for another "
                f"{kind_of(self.meaning[name])} in the code that travels: rename one of the two"
            )
        self.meaning[name] = value
        if isinstance(value, types.ModuleType):
            self._add_module(name, value, by, uses)
        elif not known:
            self.parts[name] = part = _Statement("")
            self._fill(part, name, value, by)

    def _fill(self, part: _Statement, name: str, value: object, by: str) -> None:
        if is_users_own(value):
            definition = find(value)
            if definition.name == name:
                self._define(part, definition)
                return
        elif not is_plain(value) and (origin := import_of(value, name)) is not None:
            self.imports.add(_from(*origin, name))
            return
        part.text = f"{name} = {self._expression(value, name, by, part.now)}"
        part.constant = not part.now
        if len(part.text) > LARGEST_CONSTANT:
            raise SpecError(
                f"{by} uses {name}, a constant of {len(part.text):,} characters; at most "
                f"{LARGEST_CONSTANT:,} travel as source: load it inside {by}"
            )

    def _define(self, part: _Statement, definition: Definition) -> None:
        """Write the definition itself, and every global that it names."""
        part.text, by = definition.text, definition.name
        tree = syntax.parse(part.text)
        refuse_own_imports(tree, by)
        now, later = globals_of(part.text)
        plain_now, plain_later = globals_of(ast.unparse(WithoutAnnotations().visit(tree)))
        needed = plain_now | plain_later
        if by in (plain_now if definition.postponed else now):
            raise SpecError(
                f"{by} is made from a former {by} (a base class, decorator or default of the same "
                f"name), and only one of a name can travel to the ranks: give the new one a name "
                f"of its own, such as {by}2"
            )
        uses = attributes_of(syntax.parse(part.text))
        self.postponed |= definition.postponed
        for name in sorted(now | later):
            if name == by or name in _OF_EVERY_MODULE:
                continue
            if name not in definition.scope:
                if hasattr(builtins, name) or (definition.postponed and name not in needed):
                    continue
                raise SpecError(
                    f"{by} uses {name}, which is not defined: run the cell or line that defines it "
                    "first"
                )
            value = definition.scope[name]
            if name in needed or not definition.postponed:
                self.add(name, value, by, uses.get(name, ()))
            elif not self._try(name, value, by, uses.get(name, ())):
                continue  # an annotation that is never evaluated
            (part.now if name in now else part.later).add(name)

    def _try(self, name: str, value: object, by: str, uses: Iterable[tuple[str, ...]]) -> bool:
        before = dict(self.meaning), dict(self.parts)
        try:
            self.add(name, value, by, uses)
        except SpecError:
            self.meaning, self.parts = before
            return False
        return True

    def _add_module(
        self, name: str, module: types.ModuleType, by: str, uses: Iterable[tuple[str, ...]]
    ) -> None:
        if is_installed(module):
            path = module.__name__
            self.imports.add(f"import {path}" if path == name else f"import {path} as {name}")
            self.imports.update(f"import {path}" for path in map(submodule(module), uses) if path)
            return
        members = self.members.setdefault(name, {})
        part = self.parts.setdefault(name, _Statement(""))
        for chain in uses:
            if not chain or not hasattr(module, chain[0]):
                raise SpecError(
                    f"{by} uses the module {name}, a file of your own, without naming a function "
                    f"or value in it, and only named ones travel to the ranks. Write "
                    f"{name}.function, or from {name} import function"
                )
            value, attribute = getattr(module, chain[0]), chain[0]
            if isinstance(value, types.ModuleType):
                members[attribute] = f"{name}__{attribute}"
                self.add(members[attribute], value, by, [chain[1:]])
                part.now.add(members[attribute])
            else:
                members[attribute] = self._expression(value, f"{name}.{attribute}", by, part.now)
        listed = ", ".join(f"{key}={text}" for key, text in sorted(members.items()))
        part.text = f"{name} = _types.SimpleNamespace({listed})  # what is used of {name}"
        self.imports.add("import types as _types")

    def _expression(self, value: object, name: str, by: str, needs: set[str]) -> str:
        """Return ``value`` as an expression; add the names in it to ``needs``."""

        def each(values: Iterable[object]) -> list[str]:
            return [self._expression(one, name, by, needs) for one in values]

        if (text := literal(value)) is not None:
            return text
        match value:
            case tuple() if type(value) is tuple:
                return f"({', '.join(each(value))}{',' if len(value) == 1 else ''})"
            case list() if type(value) is list:
                return f"[{', '.join(each(value))}]"
            case set() if type(value) is set:
                return f"{{{', '.join(sorted(each(value)))}}}" if value else "set()"
            case frozenset() if type(value) is frozenset:
                return f"frozenset([{', '.join(sorted(each(value)))}])"
            case dict() if type(value) is dict:
                pairs = zip(each(value), each(value.values()), strict=True)
                return f"{{{', '.join(f'{key}: {one}' for key, one in pairs)}}}"
            case types.GenericAlias() if type(value) is types.GenericAlias:
                return f"{each([value.__origin__])[0]}[{', '.join(each(value.__args__))}]"
            case types.UnionType():
                return " | ".join(each(value.__args__))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            kind = each([type(value)])[0]
            fields = fields_of(value, name, by).items()
            arguments = [
                f"{field}={self._expression(one, f'{name}.{field}', by, needs)}"
                for field, one in fields
            ]
            return f"{kind}({', '.join(arguments)})"
        title = getattr(value, "__name__", None)
        if getattr(builtins, str(title), None) is value:
            return str(title)
        if is_users_own(value):
            title = find(value).name
        elif (origin := import_of(value, name)) is not None:
            title = origin[1]
        else:
            raise SpecError(
                f"{by} uses {name}, a {kind_of(value)}, which cannot travel to the ranks as "
                "source. "
                "Functions, classes, imports and plain constants can: make it inside "
                f"{by}, or pass it as an option"
            )
        self.add(title, value, by)
        needs.add(title)
        return title

    def text(self, name: str) -> str:
        """Return all definitions, in an order in which they run; ``name`` is the one that is
        wanted.
        """
        order: dict[str, None] = {}
        plain = [one for one, part in self.parts.items() if part.constant]
        for first in (*plain, name, *self.parts):  # constants stand on top, as people write them
            self._place(first, order, set())
        order |= dict.fromkeys(self.parts)
        top = [
            "from __future__ import annotations" if self.postponed else "",
            "\n".join(sorted(self.imports)),
            "\n".join(self.parts[one].text for one in plain),
        ]
        rest = [self.parts[one].text for one in order if one not in plain]
        return "\n\n\n".join(filter(None, ["\n\n".join(filter(None, top)), *rest])) + "\n"

    def _place(self, name: str, order: dict[str, None], open_: set[str]) -> bool:
        """Put ``name`` behind all that runs while it is defined; False if that is still open."""
        if name in order or name not in self.parts:
            return True
        if name in open_:
            return False
        open_.add(name)
        for needed in sorted(self.parts[name].now):
            if not self._place(needed, order, open_):
                open_.remove(name)
                return False
            # it may be called at once, as a decorator is: then what it looks up must be there too
            for also in sorted(self._reach(needed)):
                self._place(also, order, open_)
        open_.remove(name)
        order[name] = None
        return True

    def _reach(self, name: str) -> set[str]:
        reached: set[str] = set()
        frontier = {name}
        while frontier:
            parts = [self.parts[one] for one in frontier if one in self.parts]
            frontier = set().union(*(part.now | part.later for part in parts)) - reached
            reached |= frontier
        return reached


def _from(module: str, attribute: str, name: str) -> str:
    return f"from {module} import {attribute}" + ("" if attribute == name else f" as {name}")
