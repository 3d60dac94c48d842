"""What the start page takes from a browser: names and numbers, never code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.common import syntax
from workbench.interface import form
from workbench.interface.app.limits import Limits, Refused
from workbench.interface.app.page import Site
from workbench.interface.app.runs import Runs
from workbench.interface.app.start import StartPage, plain
from workbench.user_code import source


@pytest.fixture
def site() -> Iterator[Site]:
    page_site = Site(Runs(Limits()))
    yield page_site
    page_site.pool.shutdown()


def values(**changes: Any) -> dict[str, Any]:
    return form.values(wb.Experiment()) | changes


def test_what_the_form_shows_comes_back_as_the_same_experiment() -> None:
    for preset in form.presets().values():
        assert form.experiment(plain(form.values(preset.experiment))) == preset.experiment


def test_a_second_page_parses_no_file_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes an experiment of each preset: a second's work while their files were parsed for
    each.
    """
    page, read = StartPage(site), []
    parse = syntax.parse
    monkeypatch.setattr(syntax, "parse", lambda *words: (read.append(words), parse(*words))[1])
    assert [*StartPage(site).presets] == [*page.presets] and not read
    text = Path(__file__).read_text(encoding="utf-8")  # which nothing has asked about
    assert "site" in source.names_defined(text, __file__) and len(read) == 1


@pytest.mark.parametrize("field", ["strategy", "task", "all_reduce", "options", "task_options"])
def test_a_path_to_code_is_refused_and_not_even_looked_for(field: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Secret: ...\n")
    path = f"{tmp_path}/mine.py:Missing"
    text = f"consistency: {path}" if "options" in field else path
    with pytest.raises(Refused, match="data, never code") as error:
        plain(values(**{field: text}))
    assert "Secret" not in str(error.value), "what stands in a file of this machine is its own"


@pytest.mark.parametrize(
    "options",
    [
        'consistency: "evil.p\\u0079:x"',
        'consistency: "evil.\\x70y:x"',
        "consistency: {name: x, code: 'raise SystemExit'}",
        "schedule: {code: x, name: x}",
        "staleness: [{name: x, code: y}]",
    ],
)
def test_code_that_yaml_spells_out_is_refused_on_the_page(
    site: Site, options: str, capfd: pytest.CaptureFixture[str]
) -> None:
    page = StartPage(site)
    for start in (False, True):
        page.take(values(strategy="parameter_server", options=options), start=start)
        refused = page.form.state["refused"]
        assert "are data, never code, and this one carries code in options" in refused
    assert capfd.readouterr().err == "" and not page.form.state["busy"]


@pytest.mark.parametrize("option", ["folder: {}", 'folder: "{}"', "hidden: [{}]", "folder: [{}]"])
def test_a_visitor_cannot_ask_what_is_on_this_machine(
    site: Site, option: str, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    page, words = StartPage(site), set[str]()
    for place in (tmp_path / "x", tmp_path / "y", "~/x", "~root", "../x", ".git", "a/b", "a\\b"):
        page.take(values(task="mlp_fashion", task_options=option.format(place)), start=False)
        refused = page.form.state["refused"]
        assert "names a place of this machine" in refused
        words.add(refused.partition("names a place")[2])
    assert len(words) == 1, words
    for place in ("workbench", "nowhere"):  # the one is a folder here
        page.take(values(task="mlp_fashion", task_options=f"folder: {place}"), start=False)
        assert f"'{place}' names a place of this machine" in page.form.state["refused"]


def test_a_folder_that_the_operator_named_may_be_read() -> None:
    fields = {"task": "mlp_fashion", "task_options": {"folder": "/data/mnist"}}
    Limits(data=("/data/mnist",)).check_fields(fields)
    with pytest.raises(Refused, match="only what its operator has named: '/data/mnist'"):
        Limits(data=("/data/mnist",)).check_fields(
            fields | {"task_options": {"folder": "/data/mnist/../x"}}
        )


def test_a_link_that_asks_too_much_is_refused_and_changes_nothing(site: Site) -> None:
    page = StartPage(site)
    before = page.form.state["values"]
    page.fill_from_link(form.to_link(wb.Experiment(ranks=17)))
    assert "up to 16 ranks, and this one asks for 17" in page.form.state["refused"]
    assert page.form.state["values"] == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "nonsense"}, "strategy: it is one of"),
        ({"strategy": "pipeline", "options.schedule": "0F0 0B0"}, "options.schedule: it is one of"),
        ({"task": {"name": "T", "code": "class T: ..."}}, "texts and numbers"),
        ({"options": {"a": 1}}, "texts and numbers"),
        ({"faults": "kill rank 0\n" * 1000}, "too long"),
        ({str(number): 1 for number in range(1000)}, r"has \d+ fields, and these are 1,\d+ values"),
    ],
)
def test_what_no_form_holds_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        plain(values(**changes))


def test_a_name_that_no_field_has_is_not_repeated_at_length() -> None:
    with pytest.raises(Refused, match="no field of this name") as error:
        plain({"a" * 5000: 1})
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("data", [None, [], "ranks", 3])
def test_what_is_not_a_form_is_refused(data: object) -> None:
    with pytest.raises(Refused, match="not a form's values"):
        plain(data)


def test_a_link_carries_no_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Task: ...\n")
    with pytest.raises(wb.SpecError, match="carries none"):
        form.to_link(wb.Experiment(task=f"{tmp_path}/mine.py:Task"))


def test_limits_are_said_in_words() -> None:
    assert Limits().words == (
        "Limits of this server: 16 ranks, 4 GB and 30 minutes per run; 4 runs at a time."
    )
    assert Limits(ranks=1, runs=1, minutes=1, memory=10**9).words == (
        "Limits of this server: 1 rank, 1 GB and 1 minute per run; 1 run at a time."
    )


# ---- what a click starts


@pytest.fixture
def page() -> Iterator[tuple[StartPage, list[tuple[str, wb.Experiment]]]]:
    """A start page, and what it would start: name and experiment. No rank begins."""
    page, started = StartPage(Site(Runs(Limits()))), []
    page.start = lambda exp, title: started.append((title, exp))  # type: ignore[method-assign]
    yield page, started
    page.site.pool.shutdown()


def told_by(page: StartPage) -> tuple[dict[str, Any], int]:
    """Return the fields of a browser that has heard everything, and which fill they are of."""
    return dict(page.form.state["values"]), page.form.state["filled"]


def test_no_preset_s_name_stands_over_another_experiment(
    page: tuple[StartPage, list[tuple[str, wb.Experiment]]],
) -> None:
    """However quick the reader is, and however late the server's answer comes to him."""
    start, started = page
    for n, name in enumerate(start.presets):
        values, filled = told_by(start)  # of the preset before
        start.heard({"type": "preset", "name": name, "n": 2 * n})
        start.heard({"type": "start", "values": values, "filled": filled, "n": 2 * n + 1})
        assert started == [], f"{name}: started with what stood in the fields before"
        assert "filled again" in start.form.state["refused"]
        assert start.form.state["answered"] == 2 * n + 1
        start.heard({"type": "values", "values": values, "filled": filled})
        assert start.form.state["title"] == name, "nor do fields of before say what this one is"
        assert start.form.state["code"] == form.as_program(start.presets[name].experiment)
    for name, preset in start.presets.items():
        start.heard({"type": "preset", "name": name})
        values, filled = told_by(start)
        start.heard({"type": "start", "values": values, "filled": filled})
        assert started.pop() == (name, preset.experiment)
    values, filled = told_by(start)
    start.heard({"type": "start", "values": values | {"iterations": 7}, "filled": filled})
    title, exp = started.pop()
    assert (title, exp.iterations) == (f"{name}, changed", 7)


def test_a_card_starts_its_own_preset_whatever_the_fields_hold(
    page: tuple[StartPage, list[tuple[str, wb.Experiment]]],
) -> None:
    start, started = page
    for name, preset in start.presets.items():
        start.heard({"type": "run", "name": name, "n": 1})
        assert started.pop() == (name, preset.experiment)
    for name in ("no such preset", None, ["A straggler"]):
        start.heard({"type": "run", "name": name})
    assert started == []
