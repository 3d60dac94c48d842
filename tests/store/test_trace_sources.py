"""Which attempt of which job wrote a folder of WORKBENCH_TRACE."""

from __future__ import annotations

from workbench.store.trace_sources import Origin, linked


def test_stores_that_had_an_agent_in_common_are_of_one_job() -> None:
    """Nodes leave and join: A and B, then A alone, then C and A, each on a store of its own."""
    origins = [
        Origin("first", 0, "a", 10, "a 7 100"),
        Origin("first", 0, "b", 12, "b 7 100"),
        Origin("third", 0, "c", 31, "c 9 400"),
        Origin("third", 0, "a", 30, "a 7 100"),
        Origin("second", 0, "a", 20, "a 7 100"),
        Origin("second", 1, "a", 25, "a 7 100"),
        Origin("another", 0, "a", 40, "a 7 900"),  # a later torchrun with the same number
        Origin("by hand", 0, "a", 50),
        Origin("by hand too", 0, "a", 60),
        Origin("", 0, "a", 70, "a 7 100"),  # has not joined its group
    ]
    links = linked(origins)
    (job,) = {one.job for one in links[:6]}
    assert [one.attempt for one in links] == [0, 0, 3, 3, 1, 2, 0, 0, 0, 0]
    assert [one.job for one in links[6:]] == ["another", "by hand", "by hand too", ""]
    assert job in ("first", "second", "third")
    assert [one.born_ns for one in links] == [one.born_ns for one in origins]
