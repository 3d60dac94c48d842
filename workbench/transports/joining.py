"""Joining a group: every wait for its other ranks sees their end.

torch waits in C++, in its store and while Gloo connects, until all have come or a time limit has
passed. It sees no rank's end. So the store is asked in slices, and Gloo connects in a thread, while
the rank looks around.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from torch._C._distributed_c10d import ProcessGroupGloo, Store
from torch.distributed import DistStoreError

from workbench.common.errors import PeerLost, RunTimeout, WorkbenchError, timed_out
from workbench.transports.peer_page import Peer

_FIRST_S, _LONGEST_S = 0.3e-3, 20e-3  # between two looks at the store
NAMING = 0.5  # seconds in which a rank that broke a connection is looked for
DOING = "init_process_group"
# An idle channel is not an error, and a wait that Gloo itself ends takes the connection with it:
# the deadlines are those of our own waits (messaging/watchdog.py). Each wait says so: without it,
# one for a message has the time limit that its group was joined with.
UNLIMITED = timedelta(days=365)
End = TypeVar("End")


class JoinWatch:
    """The state that a rank's waits observe while it joins a group.

    ``me``: its world rank. ``look`` raises what makes waiting useless, every ``look_s`` seconds.
    ``peers``: the members, once they are known.
    """

    def __init__(
        self,
        me: int,
        group: str,
        size: int,
        seconds: float,
        look: Callable[[], None],
        look_s: float,
    ) -> None:
        self.me, self.group, self.size, self.seconds = me, group, size, seconds
        self.look_s, self._look = look_s, look
        self.peers: Sequence[Peer] = ()

    def look(self) -> None:
        """Raise WorkbenchError where waiting is useless: PeerLost where a member has ended."""
        self._look()
        for peer in self.peers:
            if peer.gone:
                raise self._lost(f"rank {peer.rank} (process {peer.pid}) ended", peer.rank)

    def build(self, make: Callable[[], End]) -> End:
        """Return what ``make`` returns, which connects to all members and blocks in C++ meanwhile.

        Where the wait is given up, its thread goes on until the time limit of what it makes.
        """
        own_ends, errors, over = list[End](), list[BaseException](), threading.Event()

        def work() -> None:
            try:
                own_ends.append(make())
            except BaseException as error:
                errors.append(error)
            finally:
                over.set()

        threading.Thread(target=work, daemon=True, name="workbench connects").start()
        while not over.wait(self.look_s):
            self.look()
        if errors:
            raise self._explain(errors[0]) from errors[0]
        return own_ends[0]

    def too_late(self) -> RunTimeout:
        """Return the error for a member that does not go on."""
        return RunTimeout(
            f"rank {self.me} of group {self.group} ({self.size} ranks): all have come, but one of "
            "the others does not go on: is it stopped, or has it ended? "
            f"{timed_out(self.seconds)}",
            peer=self.me,
            how="silent",
            found_by=self.me,
        )

    def _explain(self, error: BaseException) -> BaseException:
        """Return an error of Gloo's as ours: a time limit, or the end of a member."""
        text = str(error)
        if isinstance(error, WorkbenchError) or not isinstance(error, RuntimeError):
            return error
        if isinstance(error, DistStoreError) or "timed out" in text.lower():
            return self.too_late()
        if "connectFullMesh" not in text:
            return error
        deadline = time.monotonic() + NAMING
        while time.monotonic() < deadline:  # a process that is killed closes its connections first
            try:
                self.look()
            except WorkbenchError as cause:
                return cause
            time.sleep(1e-3)
        return self._lost(f"a connection broke ({text.splitlines()[0]})", -1)

    def _lost(self, what: str, rank: int) -> PeerLost:
        return PeerLost(
            f"{what} while rank {self.me} joined group {self.group}",
            rank,
            peer=self.me,
            how="ended",
            doing=DOING,
            found_by=self.me,
        )


class WatchedStore(Store):
    """The keys of a group in torch's store while its ranks join it: a wait for a key looks around.

    Gloo calls it from C++, so its maker keeps it as long as the group that calls it.
    """

    def __init__(self, store: Store, watch: JoinWatch) -> None:
        super().__init__()
        self._store, self.watch = store, watch

    def set(self, key: str, value: Any) -> None:
        """Set a key."""
        self._store.set(key, value)

    def check(self, keys: list[str]) -> bool:
        """Return whether all of these keys are set."""
        return self._store.check(keys)

    def get(self, key: str) -> bytes:
        """Return the value of a key, once it is set."""
        self.wait([key])
        return self._store.get(key)

    def wait(self, keys: list[str], timeout: object = None) -> None:
        """Wait until all of these keys are set. Raises RunTimeout, or what ``look`` finds."""
        began, pause, looked = time.monotonic(), _FIRST_S, 0.0
        while not self._store.check(keys):
            waited = time.monotonic() - began
            if waited - looked >= self.watch.look_s:
                looked = waited
                self.watch.look()
            if waited > self.watch.seconds:
                raise self.watch.too_late()
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_S)


def gloo_group(store: Store, keys: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a Gloo group of all ranks that meet in ``store``, whose operations have this time
    limit. ``keys``: a part of the store.
    """
    if not isinstance(store, WatchedStore):
        return ProcessGroupGloo(keys, rank, size, timeout=timeout)
    joining = timedelta(seconds=store.watch.seconds)
    group: Any = store.watch.build(lambda: ProcessGroupGloo(keys, rank, size, timeout=joining))
    group._set_default_timeout(timeout)
    return group
