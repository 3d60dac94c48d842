"""Threads of the driver: all of them end before its interpreter does.

A thread that is inside torch or polars when the interpreter ends is unwound where C++ and Rust do
not expect that, and the process aborts ("terminate called without an active exception"); a thread
that goes on meanwhile may start processes that are never ended. So every thread of the driver
starts here. When the process ends (with its ``atexit`` functions, before the interpreter's own end)
each thread is asked to stop, the warm pool ends with its ranks, and all are waited for. A fork of
the process has none of them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from workbench.common.errors import WorkbenchError
from workbench.common.user_warnings import with_user_line

GENTLE = 0.5  # seconds from the word to stop until a thread is interrupted where it is
LONGEST = 20.0  # seconds for all to be over, on a busy machine
Stop = Callable[[], object]


class NoThread(WorkbenchError, RuntimeError):
    """A thread could not be started."""


@dataclass(frozen=True)
class _Task:
    stop: Stop | None
    launches: bool


ends: list[Stop] = []  # what is called once all have been told to stop: it ends processes kept here
_running: dict[threading.Thread, _Task] = {}
# The kernel's numbers: when Python says that a thread is over, what C++ keeps for each thread (as
# torch does) is still to be taken down, and that needs the interpreter too.
_native: set[int] = set()
_over = threading.Event()


def start(
    work: Callable[[], object], name: str, stop: Stop | None = None, *, launches: bool = False
) -> threading.Thread:
    """Do ``work`` in a thread of that name.

    ``stop``, called from another thread, makes it end soon. A thread without ``stop`` ends with the
    pool, or after a wait of less than a second. ``launches``: the thread starts ranks, so
    ``wb.shutdown()`` stops it too.
    """
    thread = threading.Thread(target=_do, args=(with_user_line(work),), name=name, daemon=True)
    _running[thread] = _Task(stop, launches)
    _native.difference_update([one for one in [*_native] if not _is_there(one)])
    try:
        thread.start()
    except RuntimeError as error:  # there are too many threads, or the interpreter is at its end
        _running.pop(thread, None)
        raise NoThread(
            f"the thread {name!r} cannot start ({error}): this user, or this container, must not "
            "have more processes and threads. `ulimit -u` shows the limit of the user, pids.max "
            "that of the container's cgroup"
        ) from None
    return thread


def import_aside(module: str) -> None:
    """Import a module in a thread and wait for it: a Ctrl-C comes to the main thread alone, and
    what is written in Rust panics where it finds one on its way. An error is left to the next
    import.
    """

    def work() -> None:
        with contextlib.suppress(Exception):
            importlib.import_module(module)

    if module not in sys.modules:
        start(work, f"workbench imports {module}").join()


def at_the_end() -> bool:
    """Return whether the process is ending, so that nothing may be started any more."""
    return _over.is_set()


def stop_launching() -> None:
    """Tell threads that start ranks to stop, without waiting for them."""
    _tell(lambda task: task.launches)


def end_processes() -> None:
    """End the processes that are kept for later: the warm pool, and those that audits keep."""
    for end in ends:
        end()


def launching() -> bool:
    """Return whether a thread goes on that starts ranks, other than this one."""
    mine = threading.current_thread()
    return any(task.launches for one, task in [*_running.items()] if one is not mine)


def _tell(chosen: Callable[[_Task], bool]) -> None:
    for task in [*_running.values()]:
        if task.stop is not None and chosen(task):
            with contextlib.suppress(Exception):  # the others are to be told, too
                task.stop()


def _do(work: Callable[[], object]) -> None:
    # Not in ``start``: a Ctrl-C may end its wait until the thread has begun.
    _native.add(threading.get_native_id())
    try:
        work()
    except Exception:
        if not _over.is_set():  # at the interpreter's end what it needs may be gone
            raise
    finally:
        _running.pop(threading.current_thread(), None)


# The interpreter calls what was registered last first, and forgets what is registered once it has
# begun. A thread may import torch, whose objects have finalizers, while ``_end`` waits for it: that
# the ``atexit`` function of weakref comes after ``_end`` is decided here, by a first finalizer.
weakref.finalize(_over, len, ())


@atexit.register
def _end() -> None:
    _over.set()
    sys.unraisablehook = _silent_ends(sys.unraisablehook)
    _tell(lambda task: True)
    end_processes()
    start, pause = time.monotonic(), 0.001
    while any(one.ident is None for one in [*_running]) or any(map(_is_there, [*_native])):
        waited = time.monotonic() - start
        if waited > LONGEST:
            return
        if waited > GENTLE:
            for thread in [*_running]:
                _interrupt(thread)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _silent_ends(
    hook: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], None]:
    """Return a hook that says nothing of a thread's end where a finalizer swallowed it: the thread
    is interrupted again.
    """

    def silent(args: sys.UnraisableHookArgs) -> None:
        if args.exc_type is not SystemExit:
            hook(args)

    return silent


def _is_there(number: int) -> bool:
    return os.path.exists(f"/proc/self/task/{number}")


def _interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in the thread, at its next line of Python; it ends silently."""
    number, kind = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, kind)


def _after_fork() -> None:
    _running.clear()
    _native.clear()


os.register_at_fork(after_in_child=_after_fork)
