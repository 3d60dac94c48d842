"""The form as ipywidgets: a field for each of form.fields(), its error in words below it."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ipywidgets as w

from workbench.experiment.spec import Experiment
from workbench.interface import form
from workbench.interface.form import Field, FormError
from workbench.interface.form_fields import POLICY_FIELD, is_shown
from workbench.user_code.source import Source

MORE = "More settings"
OTHER = "…another"  # an entry of a list, which no value is
ADD = "add a line …"


class Looks:
    """The layouts and styles of all fields, each once.

    Each is a model of its own. A kernel and its server keep a thousand messages at most for a slow
    page, and drop the others without a word: the page then lacks a model, and shows an error
    instead of the widgets that it is part of. So the form has few.
    """

    def __init__(self) -> None:
        self._full, self._plain = w.Layout(width="100%"), w.Layout()
        self._places: dict[tuple[tuple[str, ...], ...], tuple[Field, w.Layout]] = {}
        self._styles: dict[type, Any] = {}

    def make(self, kind: type, *values: Any, full: bool = True, **traits: Any) -> Any:
        """Return a widget with the style of its kind, as wide as its place."""
        style = self._styles.get(kind, {"description_width": "initial"})
        traits = {"layout": self._full if full else self._plain, **traits}
        widget = kind(*values, style=style, **traits)
        self._styles[kind] = widget.style
        return widget

    def place(self, field: Field) -> w.Layout:
        """Return the layout of a field: those of the same strategies and policies have one, and are
        shown and hidden with it.
        """
        return self._places.setdefault((field.strategies, field.policies), (field, w.Layout()))[1]

    def show(self, strategy: str, policy: str) -> None:
        """Show the fields of this strategy and of this policy, and of no other."""
        for field, layout in self._places.values():
            layout.display = None if is_shown(field, strategy, policy) else "none"


class Entry(w.VBox):
    """One field: its label, its input, its meaning, and its error."""

    def __init__(self, field: Field, changed: Callable[[], None], looks: Looks) -> None:
        self.field = field
        self.input = _input(field, looks)
        self.other: Any = None
        self.phrases: Any = None
        if _another(field):
            self.other = looks.make(
                w.Text,
                placeholder="path/to/file.py:name" if field.takes_path else "another value",
                continuous_update=False,
                layout=w.Layout(width="100%", display="none"),  # shown and hidden alone
            )
        if field.phrases:
            options = [(ADD, ""), *((one, one) for one in field.phrases)]
            self.phrases = looks.make(w.Dropdown, options=options)
        self._words = looks.make(
            w.HTML, html.escape(field.help), full=False, _dom_classes=("wb-help",)
        )
        self._known = field.choices or field.suggestions
        self._options: list[Any] = list(self._known)
        parts = (self.input, self.other, self.phrases, self._words)
        name = f"wb-field-{field.name.replace('.', '-')}"
        super().__init__(
            [part for part in parts if part is not None],
            layout=looks.place(field),
            _dom_classes=("wb-field", name),
        )
        self._changed = changed
        self.input.observe(lambda _: self._touched(), "value")
        if self.other is not None:
            self.other.observe(lambda _: self._touched(), "value")
        if self.phrases is not None:
            self.phrases.observe(lambda change: self._add(change["new"]), "value")
        self.say("")

    @property
    def _is_another(self) -> bool:
        """Return whether the value is the one typed, not one of the list."""
        value = self.input.value
        return self.other is not None and isinstance(value, str) and value == OTHER

    @property
    def value(self) -> Any:
        """The field's value; of a list that is left for a text, the text."""
        return self.other.value.strip() if self._is_another else self.input.value

    @value.setter
    def value(self, value: Any) -> None:
        if self._known:
            self._offer(value)
        self.input.value = "" if value is None else self._typed(value)

    def _typed(self, value: Any) -> Any:
        return str(value) if isinstance(self.input, w.Text) else value

    def _offer(self, value: Any) -> None:
        """Offer a value that is not among the choices, such as the user's own code, as well."""
        known = [*self._known, *(one for one in [value] if one not in self._known)]
        if self._options != known:
            self._options = known
            self.input.options = _entries(self.field, known)

    def _touched(self) -> None:
        self._fold()
        self.say("")
        self._changed()

    def _fold(self) -> None:
        """Show the text while the list is left for it."""
        if self.other is not None:
            self.other.layout.display = "" if self._is_another else "none"

    def _add(self, phrase: str) -> None:
        """Put a line below those that are there."""
        if phrase:
            lines = [line for line in self.input.value.splitlines() if line.strip()]
            self.phrases.value = ""
            self.input.value = "\n".join([*lines, phrase])

    def focus(self) -> None:
        """Lead the reader to the input."""
        (self.other if self._is_another else self.input).focus()

    def say(self, wrong: str) -> None:
        """Show the field's error, or else its meaning."""
        about = self.field.docs.get(self.value, "") if self.field.choices else ""
        words = wrong or about or self.field.help
        self._words.value = html.escape(words).replace("\n", "<br>")
        self.wrong = wrong
        (self.add_class if wrong else self.remove_class)("wb-wrong")


def _input(field: Field, looks: Looks) -> Any:
    make = partial(looks.make, description=field.label)
    typed: dict[str, Any] = {"continuous_update": False}
    if known := field.choices or field.suggestions:
        return make(w.Dropdown, options=_entries(field, known))
    if field.kind == "bool":
        return make(w.Checkbox, indent=False)
    if field.lines > 1:
        return make(w.Textarea, rows=2, placeholder=_example(field), **typed)
    if field.kind == "int" and not field.optional:
        return make(w.IntText, **typed)
    if field.kind == "float" and not field.optional:
        return make(w.FloatText, **typed)
    return make(w.Text, placeholder=_example(field), **typed)


def _another(field: Field) -> list[tuple[str, str]]:
    """Return the entry of a list that leads to a text, where a value may be another one."""
    if field.takes_path:
        return [("a path …", OTHER)]
    return [("another …", OTHER)] if field.suggestions else []


def _example(field: Field) -> str:
    """Show an example of such lines while there are none."""
    return field.example or ("left out" if field.optional else "")


def _entries(field: Field, known: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the entries of a list: what each is called, and its value."""
    return [*((_shown(one, field.labels), one) for one in known), *_another(field)]


def _shown(choice: Any, labels: Mapping[str, str]) -> str:
    if isinstance(choice, Source):
        return f"{choice.name} (yours)"
    return labels.get(choice, str(choice)) or "as the others"


class Sheet(w.VBox):
    """All fields. ``changed`` is called after each change, once where several change at once."""

    def __init__(self, experiment: Experiment, changed: Callable[[], None]) -> None:
        self._changed, self._quiet = changed, False
        self._looks = Looks()
        self.entries = {one.name: Entry(one, self._touched, self._looks) for one in form.fields()}
        plain = [one for one in self.entries.values() if not one.field.advanced]
        advanced = [one for one in self.entries.values() if one.field.advanced]
        # A button, for the keyboard does not come to the head of an Accordion.
        self.more = w.ToggleButton(description=MORE, icon="caret-right")
        self.more.add_class("wb-more")
        self.more.observe(lambda _: self._fold(), "value")
        self._advanced = _groups(advanced)
        self._fold()
        self._wrong = w.HTML()
        super().__init__([_groups(plain), self.more, self._advanced, self._wrong])
        self.add_class("wb-sheet")
        self._kept: dict[str, Any] = {}
        for name in ("strategy", POLICY_FIELD):
            self.entries[name].input.observe(lambda _: self._suit(), "value")
        self.values = form.values(experiment)
        self._suit()

    @property
    def values(self) -> dict[str, Any]:
        """The values of the fields, for form.experiment; options that carry code are unchanged."""
        return {name: entry.value for name, entry in self.entries.items()} | self._kept

    @values.setter
    def values(self, values: Mapping[str, Any]) -> None:
        self._quiet = True
        try:
            self._kept = {
                name: value
                for name, value in values.items()
                if name.endswith("options") and not isinstance(value, str)
            }
            for name, entry in self.entries.items():
                entry.value = "(code of yours)" if name in self._kept else values[name]
                entry.input.disabled = name in self._kept
                entry.say("")
        finally:
            self._quiet = False
        self._changed()

    def _suit(self) -> None:
        """Show the options of the strategy and the policy that are chosen, and of no other."""
        self._looks.show(self.entries["strategy"].value, self.entries[POLICY_FIELD].value)

    def experiment(self) -> Experiment | None:
        """Return the experiment of the fields; None, with messages beside the fields, where there
        cannot be one.
        """
        try:
            result = form.experiment(self.values)
        except FormError as error:
            self.refuse(error.fields)
            return None
        self.refuse({})
        return result

    def refuse(self, wrong: Mapping[str, str]) -> None:
        """Show what is wrong beside each field; messages under "" concern no single field."""
        for name, entry in self.entries.items():
            entry.say(wrong.get(name, ""))
            if wrong.get(name) and entry.field.advanced:
                self.more.value = True
        rest = [words for name, words in wrong.items() if name not in self.entries]
        self._wrong.value = _words(rest)

    def lead_to_what_is_wrong(self) -> str:
        """Move the focus to the first wrong field. Return a sentence that names all of them."""
        wrong = [entry for entry in self.entries.values() if entry.wrong]
        if wrong:
            wrong[0].focus()
        labels = ", ".join(entry.field.label.lower() for entry in wrong)
        where = f"Correct these fields: {labels}." if labels else "See below the fields."
        return f"Not started. {where}"

    def _fold(self) -> None:
        """Show the less frequent fields, or fold them away."""
        self._advanced.layout.display = "" if self.more.value else "none"
        self.more.icon = "caret-down" if self.more.value else "caret-right"

    def _touched(self) -> None:
        if not self._quiet:
            self._changed()


def _words(lines: list[str]) -> str:
    text = "<br>".join(html.escape(line).replace("\n", "<br>") for line in lines)
    return f'<p class="wb-refused" role="alert">{text}</p>' if text else ""


def _groups(entries: list[Entry]) -> w.VBox:
    """Return the entries under the names of their groups."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.field.group, []).append(entry)
    parts: list[Any] = []
    for name, members in groups.items():
        box = w.Box(members)
        box.add_class("wb-fields")
        parts += [w.HTML(f"<h4>{html.escape(name)}</h4>"), box]
    return w.VBox(parts)
