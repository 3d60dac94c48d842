"""Running one cell as Python runs a file, and reporting its error and the line where it stands."""

from __future__ import annotations

import ast
import linecache
import os
import sys
import time
import traceback
from types import CodeType, FrameType, TracebackType
from typing import Any

from workbench.common import syntax
from workbench.common.errors import WorkbenchError

MOST_SHOWN = 20_000  # characters of a value
_DISTRIBUTED = os.path.join("torch", "distributed")
_PASSED_OVER = ("wrapper", "inner", "_fn")  # decorators between a call in a cell and what it calls


def parse(code: str, name: str) -> tuple[CodeType, CodeType | None]:
    """Return the cell's statements, and its last expression if its value is to be shown.

    ``name`` stands for the file. A cell that ends in ";" shows nothing. Raises SyntaxError.
    """
    tree = syntax.parse(code, name)
    value: CodeType | None = None
    if tree.body and isinstance(last := tree.body[-1], ast.Expr) and not _is_silent(code):
        tree.body.pop()
        value = compile(ast.Expression(last.value), name, "eval")
    return compile(tree, name, "exec"), value


def _is_silent(code: str) -> bool:
    last = code.rstrip().rpartition("\n")[2].partition("#")[0]
    return last.rstrip().endswith(";")


def run(code: str, name: str, names: dict[str, Any]) -> str:
    """Run the cell in the namespace ``names``; the last expression's value in words, "" for None.

    Raises what the cell raises. Tracebacks show its lines.
    """
    remember(code, name)
    statements, expression = parse(code, name)
    exec(statements, names)
    if expression is None:
        return ""
    value = eval(expression, names)
    if value is None:
        return ""
    names["_"] = value
    return shorten(repr(value))


def remember(code: str, name: str) -> None:
    """Register the cell's lines under its name, for tracebacks and inspect.getsource."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


def shorten(text: str) -> str:
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}… ({len(text) - MOST_SHOWN:,} more characters)"


def is_cell(file: str) -> bool:
    return file.startswith("cell ")


# ---- what it raised


def describe_error(error: BaseException) -> dict[str, Any]:
    """Describe the exception that a cell raised.

    ``kind`` (its class), ``words``, ``line`` of the cell and its ``source``, ``missing`` (the name
    of a
    NameError), ``text`` (the traceback without the frames around the cell; of our own errors the
    cell's
    frames only).
    """
    trace = traceback.TracebackException(type(error), error, _from_the_cell(error.__traceback__))
    ours = isinstance(error, WorkbenchError)
    if ours:
        trace.__cause__ = trace.__context__ = None
    if ours or isinstance(error, KeyboardInterrupt):
        cells = [frame for frame in trace.stack if is_cell(frame.filename)]
        trace.stack = traceback.StackSummary.from_list(cells)
    elif isinstance(error, SyntaxError):
        trace.stack.clear()
    last = next((frame for frame in reversed(trace.stack) if is_cell(frame.filename)), None)
    text = "".join(trace.format()).rstrip()
    if isinstance(error, KeyboardInterrupt):
        text = f"interrupted at line {last.lineno}: {last.line}" if last else "interrupted"
    return {
        "kind": type(error).__name__,
        "words": "".join(trace.format_exception_only()).strip(),
        "line": (last.lineno or 0) if last else getattr(error, "lineno", 0) or 0,
        "source": (last.line or "") if last else "",
        "missing": str(getattr(error, "name", "") or "") if isinstance(error, NameError) else "",
        "text": shorten(text),
    }


def _from_the_cell(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames that run the cell."""
    result = trace
    while result is not None and not is_cell(result.tb_frame.f_code.co_filename):
        result = result.tb_next
    return result


# ---- where it is


def place(thread: int) -> dict[str, Any]:
    """Return a thread's position: the innermost line of a cell, and the function that it called.

    Also whether that is torch.distributed's, and the processor time that the thread has used, in
    ns.
    """
    frame: FrameType | None = sys._current_frames().get(thread)
    result = {"line": 0, "source": "", "call": "", "distributed": False}
    while frame is not None and not is_cell(frame.f_code.co_filename):
        name = frame.f_code.co_name
        if name not in _PASSED_OVER and not name.startswith("<"):
            result["call"] = name
        result["distributed"] = result["distributed"] or _DISTRIBUTED in frame.f_code.co_filename
        frame = frame.f_back
    if frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno or 0
        result |= {"line": line, "source": linecache.getline(file, line).strip()}
    return result | {"cpu_ns": time.clock_gettime_ns(time.pthread_getcpuclockid(thread))}
