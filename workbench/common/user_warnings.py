"""Warnings name the line of the user's that led to them, however deep in the workbench they are."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

_OURS = ("workbench", "weakref")  # a finalizer's call comes through weakref
_PLUMBING = ("threading", "concurrent")  # what calls a thread's function
_CHECKS = "workbench.common.arguments"  # it wraps functions that users call


@dataclass(frozen=True)
class UserLine:
    """A line of code, and the variables of its module."""

    path: str
    number: int
    variables: dict[str, Any]

    @classmethod
    def of(cls, frame: FrameType) -> UserLine:
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


class _Thread(threading.local):
    line: UserLine | None = None  # that had this thread started, of those that we start


_thread = _Thread()


def warn_user(words: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest caller that is not a module of the workbench; in a thread of the
    workbench's own, at the line that had it started.
    """
    line = user_line()
    registry = line.variables.setdefault("__warningregistry__", {})
    name = str(line.variables.get("__name__") or "<unknown>")
    warnings.warn_explicit(words, category, line.path, line.number, name, registry)


def user_line() -> UserLine:
    """Return the line that called the workbench; where there is none, as in a thread whose
    function is one of the workbench's, that function's line.
    """
    frame = called = sys._getframe()
    while _module(frame).partition(".")[0] in _OURS:
        called = called if _module(frame) == _CHECKS else frame
        if frame.f_back is None:
            break
        frame = frame.f_back
    if _module(frame).partition(".")[0] not in _PLUMBING:
        return UserLine.of(frame)
    return _thread.line or UserLine.of(called)


def with_user_line(work: Callable[[], object]) -> Callable[[], object]:
    """Return ``work`` as another thread is to do it: its warnings are of the line of now."""
    line = user_line()

    def do() -> object:
        _thread.line = line
        return work()

    return do


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
