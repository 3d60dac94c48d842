"""What a handle's future is, by the code that asks for it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import Work

from workbench.process_group.work import JobQueue, WorkbenchWork

BY_CPP = Work.get_future  # the method of the base class: C++ calls ours


def plainly(work: Any) -> Any:
    return work.get_future()


def over_two_lines(work: Any) -> Any:
    return (
        work
        # the name has a line of its own
        .get_future()
    )


def from_cpp(work: Any) -> Any:
    return BY_CPP(work)


def from_cpp_where_the_name_is_known(work: Any) -> Any:
    assert work.get_future() is not None
    return BY_CPP(work)


def by_a_name(work: Any) -> Any:
    return getattr(work, "_".join(["get", "future"]))()


def without_a_frame(work: Any) -> Any:
    return functools.partial(work.get_future)()


@pytest.mark.parametrize(
    ("ask", "python_s"),
    [
        (plainly, True),
        (over_two_lines, True),
        (from_cpp, False),
        (from_cpp_where_the_name_is_known, False),
        (by_a_name, False),  # it cannot be told: what C++ gets does here too
        (without_a_frame, False),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_halves_are_told_as_a_list_to_cpp(ask: Callable[[Any], Any], python_s: bool) -> None:
    x = torch.ones(3, dtype=torch.float16)
    work = WorkbenchWork([x], [])
    future = ask(work)
    assert (future is work._future) == python_s
    work.complete()
    assert future.wait()[0].data_ptr() == x.data_ptr()
    assert future.then(lambda done: done.value()[0] + 1).wait().tolist() == [2.0] * 3


def test_a_job_that_ends_its_thread_is_an_error_of_those_that_wait_for_it() -> None:
    queue = JobQueue("exits", before=lambda: None)
    first, second = WorkbenchWork([], []), WorkbenchWork([], [])
    queue.submit(sys.exit, first)
    with pytest.raises(SystemExit):
        first.wait(timedelta(seconds=60))
    queue.submit(lambda: None, second)
    assert second.wait(timedelta(seconds=60))
    queue.close(give_up=lambda: None)
