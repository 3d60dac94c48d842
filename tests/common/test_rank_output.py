"""A rank that prints for ever is named once, with its line, and fills nothing."""

from __future__ import annotations

import io
import sys

from workbench.common.rank_output import Limited


def test_what_is_beyond_the_measure_is_thrown_away_and_its_rank_is_named() -> None:
    out = io.StringIO()
    limited = Limited(out, 3, most=20)
    print("nineteen characters", file=limited, flush=True)
    assert out.getvalue() == "nineteen characters\n" and limited.getvalue() == out.getvalue()
    for _ in range(1000):
        line = sys._getframe().f_lineno + 1
        print("more", file=limited)
    notice = out.getvalue().removeprefix("nineteen characters\n")
    assert notice.count("thrown away") == 1 and len(notice) < 300 and "more" not in notice
    assert "[rank 3] has printed 20 characters" in notice
    assert f"test_rank_output.py line {line})" in notice
