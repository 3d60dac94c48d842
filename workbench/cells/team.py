"""Ranks that stay: processes of the warm pool that run cells, one after the other, on request.

    team = wb.ranks(4)
    team.execute("x = torch.full((3,), float(rank)); dist.all_reduce(x); x")

Each has ``rank``, ``world_size``, ``torch`` and ``dist`` at hand, the process group made over the
backend "workbench", and keeps its variables. What the ranks send each other is recorded as in a
Run, so that pages show it and change it. After a cell that failed somewhere the group is made
again: messages that were not received must not meet the next cell.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from workbench import native
from workbench.cells import running
from workbench.cells.cell import Cell, Tell, quietly
from workbench.cells.member import Member
from workbench.cells.result import CellResult, named
from workbench.cells.stores import Stores
from workbench.common import live_runs
from workbench.common.arguments import (
    Function,
    Numbers,
    TeamSize,
    Text,
    TimeLimit,
    a_function,
    checked,
)
from workbench.common.descriptors import check_descriptors
from workbench.common.errors import SpecError, WorkbenchError
from workbench.common.units import duration_ns
from workbench.launchers.processes import rank_handle
from workbench.launchers.processes.pool import meeting_place, warm_pool
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.runs.display_mixin import Shown
from workbench.runs.rank_control import RankControl
from workbench.runs.steering import Steering
from workbench.shared_memory.control_block import (
    AT_GATE,
    FROZEN_BY_USER,
    SLOW_MOTION,
    STATE,
)
from workbench.shared_memory.control_state import ControlState

if TYPE_CHECKING:
    from workbench.store.event_store import Store

Listener = Annotated[Tell, a_function]
TIMEOUT = "10 min"  # without progress, until a wait of a cell is an error
MADE_AGAIN = "The process group was made anew: generation {}."
BARE_MADE_AGAIN = "The process groups that existed have been ended: make yours again."
JOINING = 40.0  # seconds for all ranks to form a group


class Ranks(Steering, Shown):
    """``size`` ranks that run cells until ``close``, or until this process ends; ``with
    wb.ranks(size) as team:`` ends them when the block is left.

    ``bare`` leaves the process group to the user (``dist.init_process_group("workbench")``).
    ``timeout``: how long a rank may wait for another without any progress.
    """

    _group: WorkerGroup[Member]

    @checked
    def __init__(self, size: TeamSize, *, bare: bool = False, timeout: TimeLimit = TIMEOUT) -> None:
        from workbench.store.event_store import Store

        if duration_ns(timeout) <= 0:
            raise SpecError(f"timeout = {timeout!r}: must be more than 0, such as {TIMEOUT!r}")
        _refuse_in_the_web()
        check_descriptors(size)
        self.size, self.bare, self.timeout = size, bare, timeout
        self.cells, self.generation = 0, -1
        cores = os.cpu_count() or 1
        self._orders: dict[str, Any] = {
            "size": size,
            "bare": bare,
            "threads": max(1, cores // size),
            "timeout_s": duration_ns(timeout) * 1e-9,
        }
        home = self._home = warm_pool()
        self._rendezvous = meeting_place(size)
        self._orders["port"] = self._rendezvous.port
        self._stores = Stores(size)  # for groups of the user's own
        self.store: Store = Store(
            {
                "title": f"Cells on {size} rank{'s' * (size > 1)}",
                "ranks": str(size),
                "cells": "0",
                "cores": str(cores),
                "threads": str(self._orders["threads"]),
                "mover": native.name(),
            }
        )
        group = self._group = WorkerGroup(
            size, lambda ranks: [Member(rank, home) for rank in ranks], self.store
        )
        self._ranks, self._one_at_a_time = RankControl(group), threading.Lock()
        self._cell: Cell | None = None
        self._over = False
        self._at_end: list[Callable[[], None]] = []
        weakref.finalize(self, group.end, None)  # also if no more follows
        user = weakref.ref(self)
        self._entry = live_runs.register(
            live_runs.Entry(user, lambda _: _close(user()), "local", "close")
        )
        weakref.finalize(self, self._entry.leave)
        try:
            for rank in range(size):
                self._enlist(rank)
            group.collector.start()
            self._mend()
        except BaseException:
            self.close()
            raise

    # -- cells --

    @checked
    def execute(
        self,
        code: Text,
        *,
        ranks: Numbers | None = None,
        name: Text | None = None,
        tell: Listener = quietly,
    ) -> CellResult:
        """Run ``code``, a cell, on these ranks (default: all), and wait until all have ended it.

        ``tell`` hears what happens as it happens. ``name`` stands in tracebacks: "cell 3". Raises
        SyntaxError before anything starts, SpecError if there are no such ranks, WorkbenchError if
        they have ended or run another cell; what ranks raise is in the result (``check()``). An
        interrupt of this process interrupts the ranks, which go on living.
        """
        chosen = self._chosen(ranks)
        if not self._one_at_a_time.acquire(blocking=False):
            raise WorkbenchError("these ranks run another cell; wait for its end, or interrupt it")
        try:
            self.cells += 1
            name = name or f"cell {self.cells}"
            running.parse(code, name)
            self.store.metadata |= {"cells": str(self.cells), "deadlock": ""}
            self._mend(tell)  # one may have died since the last cell
            self._cell = Cell(
                self._members, chosen, self.cells, tell, lambda: self.store.doing, self._stands
            )
            try:
                result = self._cell.run(code, name, os.getcwd(), self._stores.free_port())
            finally:
                self._cell = None
            self._group.collector.drain()
            stuck = () if result.ok else result.deadlock
            self.store.metadata["deadlock"] = ",".join(map(str, stuck))
            if not result.ok:
                self._mend(lambda *arguments: _noted(result, tell, *arguments), again=True)
            return result
        finally:
            self._one_at_a_time.release()

    def _chosen(self, ranks: Sequence[int] | None) -> list[int]:
        self._must_live()
        chosen = sorted(set(range(self.size) if ranks is None else ranks))
        if not chosen or not set(chosen) <= set(range(self.size)):
            raise SpecError(
                f"ranks = {chosen}: there are {self.size}, numbered 0 to {self.size - 1}"
            )
        return chosen

    def _stands(self) -> bool:
        """Return whether the user pauses or slows the ranks: then a long wait is not a hang."""
        return self._control.clocks_stand() or self._control.words[SLOW_MOTION] != 1000

    # -- processes and their group --

    @property
    def _members(self) -> dict[int, Member]:
        return self._group.handles

    def _enlist(self, rank: int) -> Member:
        (member,) = self._group.take([rank])
        self._group.begin(member, {"work": "cells", **self._orders})
        return member

    def _mend(self, tell: Tell = quietly, again: bool = False) -> None:
        """Replace ranks that have died, and make the group again if need be, or if asked for."""
        self._must_live()
        for _ in range(3):
            dead = [rank for rank, member in self._members.items() if member.code is not None]
            if not dead and not again and self.generation >= 0:
                return
            for rank in self._members:  # a frozen one could not take part
                if self._control.rank_word(rank, FROZEN_BY_USER):
                    self.thaw(rank)
            for rank in dead:
                self._replace(rank, tell)
            late = self._regroup()
            if not late:
                if self.generation > 0:
                    tell(
                        "note",
                        (),
                        BARE_MADE_AGAIN if self.bare else MADE_AGAIN.format(self.generation),
                    )
                return
            again = True
            rank_handle.end([self._members[rank] for rank in late])
        raise WorkbenchError(
            f"{named(late)} did not form a process group within {JOINING:.0f} s; start again with "
            "new ranks"
        )

    def _replace(self, rank: int, tell: Tell) -> None:
        old = self._members[rank]
        if self._control.rank_word(rank, FROZEN_BY_USER):
            self._ranks.note_frozen(rank, False)
        for word in (AT_GATE, STATE):
            self._control.set_rank(rank, word, 0)
        new = self._enlist(rank)
        tell(
            "note",
            (),
            f"rank {rank} {old.end}. A new process takes its place ({new.pid}): its variables are "
            "gone.",
        )

    def _regroup(self) -> list[int]:
        """Have all ranks leave their groups and make a new one; return the ranks that did not."""
        self.generation += 1
        waiting = set(self._members)
        self._group.order({"do": "group", "generation": self.generation})
        deadline = time.monotonic() + JOINING
        while waiting and time.monotonic() < deadline:
            for rank, message, _ in self._group.hear(0.05):
                if message.get("grouped") == self.generation and not message["error"]:
                    waiting.discard(rank)
            if waiting & self._ranks.ended.keys():
                break  # the others wait for it in vain
        return sorted(waiting)

    # -- what pages ask of it --

    @property
    def done(self) -> bool:
        """Whether the ranks have ended."""
        if not self._over and not self._home.alive:
            self.close()  # wb.shutdown() has ended them
        return self._over

    @property
    def state_in_words(self) -> tuple[str, str]:
        """A page's word for the state, and a sentence."""
        if self._over:
            return "finished", f"The ranks have ended, after {self.cells} cells."
        if (cell := self._cell) is not None and cell.running:
            return "running", f"A cell runs on {named(cell.running)}."
        return "running", "The ranks wait for the next cell."

    @property
    def control_state(self) -> ControlState:
        """The ranks' control state: what is held, slowed or cut, and which ranks have ended."""
        ended = {rank: self._members[rank].end for rank in self._ranks.ended}
        return replace(self._control.state(), ended={} if self._over else ended)

    def stop(self) -> str:  # type: ignore[override]
        """Interrupt the cell that runs; the ranks live."""
        if (cell := self._cell) is None:
            return "No cell runs."
        self._control.let_go()
        cell.stop_asked = True
        return "The cell is interrupted."

    @checked
    def at_end(self, call: Function) -> None:
        """Register ``call`` to run when the ranks have ended; run it now if they have."""
        if self._over:
            call()
        else:
            self._at_end.append(call)

    # -- the end --

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the ranks. What they recorded stays."""
        if self._over:
            return
        self._over = True
        self._group.order({"do": "end"})
        if self._home.alive:  # before their pipes are closed, which a cell may be reading
            rank_handle.end([*self._members.values()], patience=1.0)
        self._group.end(None)
        self._entry.leave()
        self._group.release()
        self._stores.close()
        del self._rendezvous
        calls, self._at_end = self._at_end, []
        for call in calls:
            with contextlib.suppress(Exception):  # a picture's fault is not ours
                call()

    def _must_live(self) -> None:
        self._home.must_be_ours("these ranks")
        if self.done:
            raise WorkbenchError("these ranks have ended: make new ones with wb.ranks(n)")

    def __repr__(self) -> str:
        return f"Ranks({self.size}{', bare' * self.bare}{', ended' * self._over})"


def ranks(size: int, *, bare: bool = False, timeout: str = TIMEOUT) -> Ranks:
    """Start ``size`` ranks that run cells and keep their variables.

    ``bare`` and ``timeout`` as in ``Ranks``. Raises SpecError for invalid arguments, WorkbenchError
    if ranks cannot start.

    >>> team = wb.ranks(4)
    """
    return Ranks(size, bare=bare, timeout=timeout)


def _noted(result: CellResult, tell: Tell, kind: str, ranks: Sequence[int], words: str) -> None:
    result.notes.append(words)
    tell(kind, ranks, words)


def _close(team: Ranks | None) -> None:
    if team is not None:
        team.close()


def _refuse_in_the_web() -> None:
    """Raise if called from a page of a web app, whose visitors must not run code."""
    panel = sys.modules.get("panel")
    document = panel.state.curdoc if panel is not None else None
    if document is not None and document.session_context is not None:
        raise WorkbenchError("cells on ranks are code, and the web app runs none: use a notebook")
