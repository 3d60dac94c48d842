"""Messages of a browser to a page's parts, and to the stage of live ranks."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import workbench as wb
from tests.live import LONG, lenet, over_in_the_end, training
from tools.fuzz import messages
from tools.fuzz.family import Family
from tools.fuzz.made_up import from_a_page, text
from workbench.interface import form
from workbench.interface.app import partition
from workbench.interface.app.limits import Limits
from workbench.interface.app.page import Site
from workbench.interface.app.runs import Runs
from workbench.interface.app.start import StartPage

CHECK = 30.0  # seconds for an answer
HOURS = "10 h"


def to_the_start_page(chance: random.Random) -> Any:
    """Most often of the right form: a form's values, a preset's name, past runs that are ticked."""
    if chance.random() < 0.15:
        return from_a_page(chance)
    values = form.values(chance.choice([*form.presets().values()]).experiment)
    for _ in range(chance.choice((0, 1, 2))):
        values[chance.choice([*values, text(chance)])] = from_a_page(chance)
    names = [*form.presets(), from_a_page(chance)]
    message = {"type": chance.choice(("values", "start", "first", "preset", "tick", "hello"))}
    message |= {"values": values, "name": chance.choice(names), "ids": from_a_page(chance)}
    if chance.random() < 0.2:
        message[chance.choice([*message])] = from_a_page(chance)
    return message


def to_the_partition_page(chance: random.Random) -> Any:
    values = dict(partition.START)
    for name, most in partition.MOST.items():
        values[name] = chance.choice((0, 1, 2, 3, 7, 64, most, most + 1))
    for name in ("shuffle", "drop_last", "set_epoch"):
        values[name] = chance.random() < 0.5
    values["sampler"] = chance.choice((*partition.SAMPLERS, "none"))
    if chance.random() < 0.5:
        values[chance.choice([*values])] = from_a_page(chance)
    if chance.random() < 0.1:
        values.pop(chance.choice([*values]))
    return {"type": "values", "values": values if chance.random() < 0.9 else from_a_page(chance)}


@contextlib.contextmanager
def web_app() -> Iterator[dict[str, Family]]:
    """Pages of a server that has no place for a run, so that nothing starts."""
    site = Site(Runs(Limits(runs=0)))
    samples = partition.PartitionPage()

    def at_start(message: Any) -> None:
        page = StartPage(site)
        page.form._handle_msg(message)
        page.past.part._handle_msg(message)
        assert isinstance(page.form.state["refused"], str)

    def at_partitions(message: Any) -> None:
        samples.form._handle_msg(message)
        assert isinstance(samples.form.state["refused"], str)

    try:
        yield {
            "start_page": Family(to_the_start_page, at_start),
            "partition_page": Family(to_the_partition_page, at_partitions),
        }
    finally:
        site.pool.shutdown(wait=True)


@contextlib.contextmanager
def ranks() -> Iterator[dict[str, Family]]:
    """Stages of a run that trains, and of ranks that run cells: both live on whatever they hear."""
    exp = lenet(iterations=LONG, pad_compute="20 ms", timeout=HOURS)  # links may be cut meanwhile
    run = wb.run(exp)
    with over_in_the_end(run), contextlib.closing(wb.ranks(2, timeout=HOURS)) as team:
        yield {
            "stage_of_a_run": Family(messages.message, _heard(training(run))),
            "stage_of_cells": Family(messages.message, _heard(team)),
        }
        run.stop()
        ended = run.wait(60, check=False)
        assert ended.ok, ended.error
        team._control.let_go()
        for rank in team.pids:
            team.thaw(rank)
        assert team.execute("rank").check().values, "the ranks run cells no more"


def _heard(live: Any) -> Callable[[Any], None]:
    """A page of these ranks: what asks for an answer gets one, in words."""
    listener = messages.Listener(live)

    def hear(message: Any) -> None:
        before = len(listener.answers)
        listener.page.hear(message)
        if messages.is_answered(message):
            listener.until(lambda: len(listener.answers) > before, CHECK)
            answer = listener.answers[-1]
            assert repr(answer["id"]) == repr(message["id"]), answer  # a NaN is not equal to itself
            assert answer["words"] and isinstance(answer["ok"], bool), answer
        assert not live.done, "it has ended"

    return hear
