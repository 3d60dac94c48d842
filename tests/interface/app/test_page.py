"""A part of a page and what it is told: nothing stays lost."""

from __future__ import annotations

import panel as pn
from bokeh.document import Document
from bokeh.models import ImportedStyleSheet
from panel.io.state import set_curdoc

from workbench.interface.app.page import PastPart, frame


def test_a_part_that_misses_what_it_was_told_is_told_again_each_time_it_says_so() -> None:
    part = PastPart()
    sent: list[dict[str, object]] = []
    part.param.watch(lambda change: sent.append(change.new), "state")
    part.tell(runs=[1])
    for lost in range(3):  # the page still says that it has nothing
        part._handle_msg({"type": "hello", "n": None})
        assert len(sent) == 2 + lost and sent[-1]["runs"] == [1]
    part._handle_msg({"type": "hello", "n": sent[-1]["n"]})
    assert len(sent) == 4, "it has what there is"


def test_a_session_that_no_answer_with_a_page_began_has_its_styles_from_this_server() -> None:
    """As where a page's line was lost for so long that its session is over: it makes another."""
    document = Document()
    with set_curdoc(document):
        frame("a page", {"button": pn.widgets.Button(name="Start")}).server_doc(document)
    urls = [str(one.url) for one in document.select({"type": ImportedStyleSheet})]
    assert urls and not [url for url in urls if "://" in url]
