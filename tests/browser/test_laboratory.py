"""``wb.lab()`` in JupyterLab: a preset, Run, the stage moves, charts grow, what is typed stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests import notebook_files
from tests.browser.conftest import Watched, known, wait_for
from tests.browser.test_lab import DARK, RUN_ALL, TOO_LATE
from tests.pairwise import first
from workbench.interface import laboratory

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
LAB_CSS = Path(laboratory.__file__).parent / "lab.css"
PICTURES = os.environ.get("WORKBENCH_PICTURES")  # a folder: then pictures are left there
PLOT = """const plot = box.querySelector(".wb-charts .js-plotly-plot");"""
LOADED = "(all) => all.filter((one) => one.complete && one.naturalWidth > 0).length"
POINTS = f"""(box) => {{
  {PLOT}
  return plot?._fullData?.map((trace) => trace.x?.length ?? 0) ?? [];
}}"""
ROOM = f"(box) => {{ {PLOT} return Math.abs(plot._fullLayout.width - plot.clientWidth) < 2; }}"
GROUND = f"""(box) => {{
  {PLOT}
  return getComputedStyle(plot.querySelector(".main-svg")).backgroundColor;
}}"""
BEHIND = """(box) => {
  const seen = (one) => getComputedStyle(one).backgroundColor !== "rgba(0, 0, 0, 0)";
  let place = box;
  while (place.parentElement && !seen(place)) place = place.parentElement;
  return getComputedStyle(place).backgroundColor;
}"""  # the color of what a page shows behind its charts
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
MOVED = """async (root) => {
  const name = (m) => [m.rank, m.peer, m.op, m.step, m.chunk, m.slot].join();
  const was = new Map(root.stage.frame().marks.map((m) => [name(m), m]));
  await new Promise((on) => setTimeout(on, 100));
  return root.stage.frame().marks.some((m) => was.has(name(m)) && was.get(name(m)).x !== m.x);
}"""
NOTEBOOKS = {
    "lab": ["import workbench as wb\n\nlab = wb.lab()\nlab"],
    "charts": [
        "import workbench as wb\n\nrun = wb.run(wb.Experiment(ranks=2, iterations=300))",
        'run.charts("loss", "throughput")',
        "result = await run",
    ],
    "compare": [
        "import workbench as wb\n\nexp = wb.Experiment(ranks=2, iterations=40, batch_size=16)",
        "other = exp.replace(all_reduce='naive')",
        "found = wb.compare({'ring': exp, 'naive': other}, seeds=2)\nfound",
        "_ = await found",
    ],
}
ONE, TWO = (f"{at} · data_parallel, ring, 4 ranks" for at in (1, 2))


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name, cells in NOTEBOOKS.items():
        notebook_files.write(folder / f"{name}.ipynb", cells)
    return folder


def goto(page: Page, address: str) -> None:
    page.goto(address, wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook")
    page.evaluate(notebook_files.READY)


def opened(lab: str, page: Page, scheme: str = "light") -> Locator:
    """The laboratory in a notebook that was just run."""
    goto(page, lab.format("lab.ipynb"))
    if scheme == "dark":
        page.evaluate(DARK)
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    page.evaluate(RUN_ALL)
    output = page.locator(".jp-OutputArea-output .wb-lab").first
    output.wait_for()
    return output


def picture(box: Locator, name: str) -> None:
    if PICTURES:
        box.screenshot(path=f"{PICTURES}/{name}.png")


def field(box: Locator, name: str) -> Locator:
    return box.locator(f".wb-field-{name}")


def button(box: Locator, name: str) -> Locator:
    return box.locator(f"button.wb-lab-{name}")


def unfold(box: Locator) -> None:
    """Show the form, which is folded at first and whenever a run begins."""
    assert not field(box, "iterations").is_visible(), "the picture comes first"
    box.get_by_role("button", name="Change", exact=True).click()
    field(box, "iterations").wait_for()


def points(box: Locator) -> list[int]:
    """Return how many points each line of the charts has."""
    return box.evaluate(POINTS)


def code(box: Locator) -> str:
    return box.locator(".wb-code pre").inner_text()


def is_empty(box: Locator, stage: Locator, scheme: str) -> None:
    """Before the first run: an empty stage and charts, in the notebook's light or dark."""
    stage.wait_for()
    wait_for(lambda: known(stage, "state") == "empty", "nothing runs yet")
    assert stage.evaluate("(root) => getComputedStyle(root).colorScheme") == scheme
    wait_for(lambda: points(box) == [0, 0, 0], "charts before the first run")
    wait_for(lambda: box.evaluate(ROOM), "charts as wide as their place")
    wait_for(
        lambda: box.evaluate(GROUND) == box.evaluate(BEHIND), f"the {scheme} ground of the page"
    )
    assert 'stop_after="2 min"' in code(box)
    picture(box, f"laboratory-empty-{scheme}")


def both_are_compared(box: Locator, scheme: str) -> None:
    wait_for(lambda: len(points(box)) == 3 + 4, "the losses of both")
    assert box.locator(".wb-compare").first.locator("th").all_inner_texts()[1:] == [ONE, TWO]
    for name in ("Accuracy", "Recording"):
        box.locator("button", has_text=name).click()
    wait_for(lambda: len(points(box)) == 3 + 2 + 2 + 4, "two more charts")
    wait_for(lambda: box.evaluate(ROOM), "charts as wide as their place")
    picture(box, f"laboratory-compared-{scheme}")


@pytest.mark.parametrize("scheme", first(1, ["dark", "light"]))
def test_from_a_preset_to_a_comparison(
    lab: str, open_page: Callable[..., Watched], scheme: str
) -> None:
    watched = open_page(
        color_scheme=scheme, viewport={"width": 1300, "height": 2400}, reduced_motion="reduce"
    )  # the cards' pictures stand still: eight that move take a core
    page = watched.page
    if scheme == "dark":  # all of it on a page that was too slow for anywidget, too
        page.add_init_script(TOO_LATE)
    box = opened(lab, page, scheme)
    stage = box.locator(".wb-stage").first
    is_empty(box, stage, scheme)

    # What cannot be is said beside its field, and stays there until it is put right.
    links = field(box, "network-links").locator("textarea")
    unfold(box)
    links.fill("0->9: 5 ms")
    links.blur()
    field(box, "network-links").get_by_text("there is no rank 9").wait_for()
    button(box, "start").click()
    box.get_by_text("Not started. Correct these fields: links that differ.").wait_for()
    assert links.input_value() == "0->9: 5 ms"
    picture(box, f"laboratory-refused-{scheme}")

    # A preset, a run.
    box.locator(".wb-row select").first.select_option("A slow link")
    wait_for(lambda: "20 ms" in code(box), "the preset's code")
    assert links.input_value() == "0->1: 20 ms"
    iterations = field(box, "iterations").locator("input")
    iterations.fill("30")
    iterations.press("Tab")
    wait_for(lambda: "iterations=30" in code(box), "what was typed")
    button(box, "start").click()
    wait_for(lambda: known(stage, "state") == "finished", "its end")
    wait_for(lambda: points(box) == [30, 30, 30], "a point for each iteration")
    box.get_by_text("Done: 30 iterations").first.wait_for()

    page.emulate_media(reduced_motion="no-preference")
    # Another one, stopped by hand: the stage moves, the charts grow; then both are compared.
    unfold(box)
    links.fill("0->1: 25 ms")
    iterations.fill("100000")
    iterations.press("Tab")
    wait_for(lambda: "iterations=100000" in code(box).replace("_", ""), "what was typed")
    button(box, "start").click()
    wait_for(lambda: known(stage, "state") == "running", "a second run")
    stage.locator("[data-scene=collectives]").first.click()
    wait_for(lambda: stage.evaluate(MOVED), "a chunk on the move")
    first = wait_for(lambda: max(points(box)), "points while it runs")
    wait_for(lambda: max(points(box)) > first, "more points")
    assert button(box, "start").is_disabled()
    picture(box, f"laboratory-running-{scheme}")
    box.locator(".wb-stage button.wb-stop").click()
    wait_for(lambda: known(stage, "state") == "finished", "its end")
    both_are_compared(box, scheme)

    # Back to what the first one was.
    box.locator(".wb-past-row", has_text=ONE).locator("button").nth(1).click()
    wait_for(lambda: links.input_value() == "0->1: 20 ms", "its settings")
    box.locator(".wb-past-row", has_text=ONE).locator("button").nth(0).click()
    wait_for(lambda: points(box)[:1] == [30], "its charts")
    if scheme == "dark":
        given_up = [words for words in watched.errors if "Failed to initialize model" in words]
        assert given_up and given_up == watched.errors, "anywidget has given its widgets up"
        watched.errors.clear()


@pytest.mark.full
def test_a_reload_in_the_middle_of_a_run_comes_back_to_it(
    lab: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page(viewport={"width": 1300, "height": 2000}).page
    box = opened(lab, page)
    unfold(box)
    iterations = field(box, "iterations").locator("input")
    iterations.fill("100000")
    iterations.press("Tab")
    wait_for(lambda: "iterations=100" in code(box), "what was typed")
    button(box, "start").click()
    wait_for(lambda: max([0, *points(box)]) > 5, "points")
    page.evaluate(SAVE)
    goto(page, lab.format("lab.ipynb").replace("&reset", ""))
    box = page.locator(".jp-OutputArea-output .wb-lab").first
    box.wait_for()
    stage = box.locator(".wb-stage").first
    wait_for(lambda: known(stage, "state") == "running", "the live run")
    assert iterations.input_value() == "100000"
    first = wait_for(lambda: max([0, *points(box)]), "its history")
    assert first > 5
    wait_for(lambda: max(points(box)) > first, "more of it")
    box.locator(".wb-stage button.wb-stop").click()
    wait_for(lambda: known(stage, "state") == "finished", "its end")


@pytest.mark.full
def test_charts_beside_a_run_in_a_plain_notebook(
    lab: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page(viewport={"width": 1300, "height": 900}).page
    goto(page, lab.format("charts.ipynb"))
    page.evaluate(RUN_ALL)
    box = page.locator(".jp-OutputArea:has(.wb-charts)").first
    wait_for(lambda: box.count() and max([0, *points(box)]) > 2, "points while a cell awaits")
    wait_for(lambda: max(points(box)) == 300, "a point for each iteration")
    wait_for(lambda: box.evaluate(ROOM), "charts as wide as their place")
    picture(box, "charts-light")


@pytest.mark.full
def test_a_comparison_grows_in_a_notebook(lab: str, open_page: Callable[..., Watched]) -> None:
    """Its lines come as runs end, in the page's own charts; below it the table."""
    page = open_page(viewport={"width": 1300, "height": 1600}).page
    goto(page, lab.format("compare.ipynb"))
    page.evaluate(RUN_ALL)
    plot = page.locator(".js-plotly-plot").first
    plot.wait_for()
    named = "(plot) => plot._fullData?.filter((one) => one.x?.length).length"
    lines = 3 * 2 * 3  # by updates, time and bytes: a line each, and its band
    wait_for(lambda: plot.evaluate(named) == lines, "all lines")
    page.get_by_text("4 of 4 runs done").first.wait_for()
    cells = page.locator(".jp-RenderedHTMLCommon table tr", has_text="state").first.inner_text()
    assert cells.split() == ["state", "finished", "finished"]
    picture(page.locator(".jp-Notebook").first, "comparison")


@pytest.mark.full
@pytest.mark.parametrize("scheme", first(1, ["dark", "light"]))
def test_a_card_moves_is_found_by_its_words_and_runs(
    lab: str, open_page: Callable[..., Watched], scheme: str
) -> None:
    page = open_page(
        color_scheme=scheme,
        viewport={"width": 1440, "height": 1400},
        reduced_motion="no-preference",
    ).page
    box = opened(lab, page, scheme)
    cards = box.locator(".wb-card").locator("visible=true")
    wait_for(lambda: box.locator(".wb-living img").evaluate_all(LOADED) == 8, "eight pictures")
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # they stand still now
    assert cards.count() == 8
    picture(box, f"laboratory-gallery-{scheme}")
    search = box.get_by_label("Search the presets")
    search.fill("server dies")
    assert "A server that dies" in cards.locator("b").all_inner_texts() and cards.count() < 9
    search.fill("")

    box.get_by_role("button", name="Change first: Server: SSP").click()
    wait_for(lambda: "staleness=3" in code(box) or "ssp" in code(box), "the preset's code")
    run_box, card = button(box, "start").bounding_box(), cards.first.bounding_box()
    assert run_box and card and run_box["x"] > card["x"] + card["width"], "beside the cards"
    picture(box, f"laboratory-beside-{scheme}")

    box.locator(".wb-run", has_text="Ring of four").click()
    stage = box.locator(".wb-stage").first
    # On a page that is slow it may be over when it is first seen.
    wait_for(lambda: known(stage, "state") in ("running", "finished"), "a run")
    assert cards.count() == 0, "the cards make room for the stage"
    assert 'stop_after="2 min"' in code(box)
    picture(box, f"laboratory-from-a-card-{scheme}")


def test_one_field_at_a_time_says_what_it_means(open_page: Callable[..., Watched]) -> None:
    page = open_page().page
    field = '<div class="wb-field"><input value="{0}"><p class="wb-help">{0}</p></div>'
    fields = "".join(map(field.format, ("Ranks", "Iterations")))
    page.set_content(
        f"<style>{LAB_CSS.read_text()}</style>"
        f'<div class="wb-lab"><div class="wb-fields">{fields}</div></div>'
    )
    ranks, iterations = page.locator(".wb-field").all()
    shown = page.locator(".wb-help:visible")
    ranks.locator("input").focus()
    assert shown.all_inner_texts() == ["Ranks"]
    iterations.hover()
    assert shown.all_inner_texts() == ["Iterations"], "not that of the field with the focus, too"
    page.mouse.move(900, 600)
    assert shown.all_inner_texts() == ["Ranks"]
