"""Rendezvous: the ranks of a group meet in torch's store, without ranks of a former attempt.

A store may outlive the processes that wrote to it: torchrun keeps one over all its restarts, a
``file://`` store stays from job to job. Addresses that ended processes left there look like those
of living ones. So each rank writes a word that is new, and is answered:

    every rank    hello/<rank>     its word
    rank 0        roster           a new name, and the words that it has found
    the others    ready/<name>/<rank>  once its word is in the roster
    rank 0        begin/<name>     written once all others are ready

A word of a former attempt makes no rank ready; rank 0 looks again and writes another roster. The
roster's name is the prefix of every key of the group from here on. TORCHELASTIC_RESTART_COUNT could
not be it: agents of several hosts count restarts differently, as only the one whose worker failed
counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from torch._C._distributed_c10d import PrefixStore, Store

from workbench.common.errors import RunTimeout, timed_out

NOTICE_S = 15.0  # so long a rank waits in silence
_FIRST_S, _LONGEST_S = 0.3e-3, 20e-3  # between two looks


@dataclass(frozen=True, slots=True)
class Meeting:
    """The agreement of one group's ranks.

    ``name``: a new one. ``job``: of all attempts on this store; ``attempt`` counts them from 0.
    """

    name: str
    job: str
    attempt: int


def meet(
    store: Store,
    rank: int,
    world: Sequence[int],
    *,
    group: str,
    timeout: timedelta,
    look: Callable[[], None] = lambda: None,
) -> Meeting:
    """Wait until all ranks of the group are here, at the same time; ``world[i]`` is the world rank
    of its rank i.

    ``look`` raises what makes waiting useless. Raises RunTimeout, which names the missing ranks.
    """
    progress = _Progress.of(store, world, group)
    progress.publish(world[rank])
    pauses = _Pauses(rank, world, group, timeout.total_seconds(), look, progress.words)
    mine = os.urandom(8).hex()
    store.set(f"hello/{rank}", mine)
    if rank == 0:
        return _gather(store, len(world), mine, pauses)
    return _join(store, rank, len(world), mine, pauses)


def _gather(store: Store, size: int, mine: str, pauses: _Pauses) -> Meeting:
    """Gather all ranks' entries on rank 0, and begin the meeting."""
    name, roster = "", [""]
    missing = list(range(1, size))
    while True:
        absent = [rank for rank in missing if not store.check([f"hello/{rank}"])]
        if not absent:
            words = [mine, *(store.get(f"hello/{rank}").decode() for rank in range(1, size))]
            if words != roster:
                name, roster, missing = os.urandom(8).hex(), words, list(range(1, size))
                store.set("roster", json.dumps([name, words]))
            missing = [rank for rank in missing if not store.check([f"ready/{name}/{rank}"])]
            if not missing:
                break
        pauses.pause(partial(list, absent or missing))
    if not store.check(["job"]):
        store.set("job", name)
    job, attempt = store.get("job").decode(), store.add("attempts", 1) - 1
    store.set(f"begin/{name}", json.dumps([job, attempt]))
    return Meeting(name, job, attempt)


def _join(store: Store, rank: int, size: int, mine: str, pauses: _Pauses) -> Meeting:
    """Join the group, as every rank but rank 0 does."""
    name = ""

    def absent() -> list[int]:
        return [one for one in range(size) if not store.check([f"hello/{one}"])]

    while not (name and store.check([f"begin/{name}"])):
        if store.check(["roster"]):
            newest, words = json.loads(store.get("roster"))
            if newest != name and words[rank : rank + 1] == [mine]:
                name = newest
                store.set(f"ready/{name}/{rank}", "")
                continue
        pauses.pause(list if name else absent)
    job, attempt = json.loads(store.get(f"begin/{name}"))
    return Meeting(name, job, attempt)


@dataclass(frozen=True)
class _Progress:
    """The group that each rank makes, by torch's count of ``new_group``: every rank counts all
    groups, also those that it is not in. Kept beside the groups' own keys, where ranks that make
    groups in different orders find each other. ``number`` 0: not known, torch has given a hash.
    """

    store: Store
    world: Sequence[int]
    number: int

    @classmethod
    def of(cls, store: Store, world: Sequence[int], group: str) -> _Progress:
        """Return that of a group of this name in the records."""
        while isinstance(store, PrefixStore):
            store = store.underlying_store
        text = group.rpartition(":")[2]
        return cls(store, world, int(text) if text.isdecimal() and len(text) < 7 else 0)

    def publish(self, rank: int) -> None:
        """Tell the others which group this rank makes."""
        if self.number:
            self.store.set(f"workbench/group/{rank}", str(self.number))

    def words(self) -> str:
        """Return which group each rank makes, where that differs: "; ranks 0, 1 make their 2nd
        group, ranks 2, 3 their 1st".
        """
        numbers: dict[int, list[int]] = {}
        for rank in self.world if self.number else ():
            if self.store.check([key := f"workbench/group/{rank}"]):
                numbers.setdefault(int(self.store.get(key)), []).append(rank)
        parts = [
            f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} "
            f"{'' if at else 'make' if len(ranks) > 1 else 'makes'}"
            f"{'' if at else ' '}{'their' if len(ranks) > 1 else 'its'} {_nth(number)}"
            f"{'' if at else ' group'}"
            for at, (number, ranks) in enumerate(sorted(numbers.items(), reverse=True))
        ]
        return f"; {', '.join(parts)}" if len(parts) > 1 else ""


def _nth(number: int) -> str:
    last = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{last}"


class _Pauses:
    """Pauses between looks at the store, with a word after a while and an error in the end."""

    def __init__(
        self,
        rank: int,
        world: Sequence[int],
        group: str,
        seconds: float,
        look: Callable[[], None],
        progress: Callable[[], str] = str,
    ) -> None:
        self.progress = progress
        self.rank, self.world, self.group, self.seconds = rank, world, group, seconds
        self.look = look
        self.began, self.has_warned, self.next = time.monotonic(), False, _FIRST_S

    def pause(self, absent: Callable[[], Sequence[int]]) -> None:
        """Wait before the next look. ``absent`` returns the ranks of the group that have not come,
        and is only asked before it is said; none: all that this rank can see have.
        """
        self.look()
        waited = time.monotonic() - self.began
        if waited > self.seconds:
            missing = absent()
            raise RunTimeout(
                f"{self._words(missing)}. Did it fail before init_process_group or new_group, or "
                f"do ranks make groups in different orders? {timed_out(self.seconds)}",
                self.world[missing[0]] if len(missing) == 1 else -1,
                peer=self.world[self.rank],
                how="silent",
                found_by=self.world[self.rank],
            )
        if waited > NOTICE_S and not self.has_warned:
            self.has_warned = True
            words = f"[workbench] {self._words(absent(), f' for {waited:.0f} s')}: still waiting"
            print(words, file=sys.stderr, flush=True)
        time.sleep(self.next)
        self.next = min(self.next * 1.3, _LONGEST_S)

    def _words(self, missing: Sequence[int], lasting: str = "") -> str:
        ranks = [self.world[rank] for rank in missing]
        names = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "a rank"
        return (
            f"rank {self.world[self.rank]} of group {self.group} ({len(self.world)} ranks): "
            f"{names} did not join it{lasting}{self.progress()}"
        )
