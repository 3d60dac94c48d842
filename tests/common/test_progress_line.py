"""The line of progress."""

from __future__ import annotations

import pytest

from workbench.common.progress_line import progress_line


def test_each_text_is_over_the_one_before_and_the_last_removes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say = progress_line(True, "audit: ")
    say("one")
    say("")
    assert capsys.readouterr().err == "\r\x1b[Kaudit: one\r\x1b[K"
    progress_line(False)("one")
    assert capsys.readouterr().err == ""
