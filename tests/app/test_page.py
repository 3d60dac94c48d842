"""A part of a page and what it is told: nothing stays lost."""

from __future__ import annotations

from workbench.app.page import PastPart


def test_a_part_that_misses_what_it_was_told_is_told_again_each_time_it_says_so() -> None:
    part = PastPart()
    sent: list[dict[str, object]] = []
    part.param.watch(lambda change: sent.append(change.new), "told")
    part.tell(runs=[1])
    for lost in range(3):  # the page still says that it has nothing
        part._handle_msg({"type": "hello", "n": None})
        assert len(sent) == 2 + lost and sent[-1]["runs"] == [1]
    part._handle_msg({"type": "hello", "n": sent[-1]["n"]})
    assert len(sent) == 4, "it has what there is"
