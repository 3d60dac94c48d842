"""The ranks that took part in a collective, and its steps and bytes against theory: what is wrong
is named.
"""

from __future__ import annotations

import polars as pl

from tests.laws.simulator import simulate
from tests.laws.tampering import RING, changed, row, verdict, without
from workbench.laws import check_events


def test_wrong_bytes_are_named() -> None:
    events = changed(RING, row("send", 0, 3), nbytes=999)
    assert "rank 0 sent 999 B" in verdict(events, "matched messages")
    words = verdict(events, "steps and bytes")
    assert "rank 0, all_reduce 0 in group 'default' (ring, 4 ranks, 412 B)" in words
    assert "bytes sent, theory 616" in words  # chunks 26 26 26 25: 4·(206 - 26 - 26)


def test_bytes_that_agree_with_each_other_but_not_with_theory_are_named() -> None:
    outer = pl.col("kind") == "collective"
    events = RING.with_columns(
        nbytes=pl.when(outer).then(pl.lit(416, pl.Int64)).otherwise("nbytes")
    )
    assert "theory 624" in verdict(events, "steps and bytes")


def test_a_step_too_many_is_named() -> None:
    last = (pl.col("chunk") == 1) & (pl.col("step") == 5)
    later = RING.with_columns(step=pl.when(last).then(pl.lit(6, pl.Int32)).otherwise("step"))
    assert "7 steps in all, theory 6" in verdict(later, "steps and bytes")


def test_a_message_too_few_is_named_even_when_empty() -> None:
    events = simulate("ring", 4, 2)  # chunks 2 and 3 are empty, and have their rows all the same
    gone = events.filter(~((pl.col("step") == 1) & (pl.col("chunk") == 3)))
    assert "5 messages sent, theory 6" in verdict(gone, "steps and bytes")


def test_a_rank_that_stayed_away_is_named() -> None:
    kind = pl.col("kind") == "collective"
    gone = without(RING, row("collective", 2, -1, op=1))
    words = verdict(gone, "everyone takes part")
    assert (
        words == "rank 2 has no collective rows for all_reduce 1 in group 'default': expected one"
    )
    other = changed(RING, kind, nbytes=8)
    assert "disagree about the bytes" in verdict(other, "everyone takes part")


def test_a_wrong_root_is_named() -> None:
    events = simulate("broadcast/flat", 4, 8, root=1)
    outer = pl.col("kind") == "collective"
    other = events.with_columns(peer=pl.when(outer).then(2).otherwise("peer").cast(pl.Int32))
    words = verdict(other, "complete sums")
    assert "lacks the part of rank 2 and holds rank 1's part, which is not due there" in words
    assert (
        "rank 1, broadcast 0 in group 'default' (flat, 4 ranks, 32 B): 96 bytes sent, theory 0"
        in (verdict(other, "steps and bytes"))
    )
    torn = changed(events, outer & (pl.col("rank") == 3), peer=2)
    assert "disagree about the bytes, the root" in verdict(torn, "everyone takes part")


def test_bytes_of_an_uneven_all_to_all_are_not_held_to_a_formula() -> None:
    events = simulate("all_to_all/pairwise", 3, 9)
    more = pl.when(pl.col("kind") == "collective").then(36 + 4 * pl.col("rank")).otherwise("nbytes")
    uneven = events.with_columns(nbytes=more.cast(pl.Int64))
    assert "24 bytes sent" in verdict(uneven, "steps and bytes")
    assert check_events(uneven.with_columns(value=float("nan"))) == []
    gone = uneven.filter(pl.col("step") != 1).with_columns(value=float("nan"))
    assert "1 message sent, theory 2" in verdict(gone, "steps and bytes")
