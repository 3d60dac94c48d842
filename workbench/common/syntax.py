"""Parsing Python in a program with several threads.

CPython 3.11 and 3.12 count the depth of the tree that they build once per interpreter: of two
threads that parse at the same time, one may raise "SystemError: AST constructor recursion depth
mismatch". https://github.com/python/cpython/issues/106905
"""

from __future__ import annotations

import ast
import threading

TRIES = 50
_lock = threading.Lock()


def parse(code: str, file: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of ``code``, from any thread. Raises SyntaxError.

    A lock keeps our own threads apart. Other threads, such as the one that runs a notebook's cells,
    may parse at the same moment: if one disturbs this parse, it is tried again.
    """
    for _ in range(TRIES - 1):
        try:
            with _lock:
                return ast.parse(code, file)
        except SystemError:
            continue
    return ast.parse(code, file)
