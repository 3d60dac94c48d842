"""Compile the mover: ``python workbench/native/build.py``, which ``make mover`` runs.

The wheel's build hook (build_mover.py) loads this file by its path, where nothing is installed yet:
it imports the standard library only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
BINARY = HERE / "_mover.abi3.so"
DEADLINE = 300.0  # seconds for one compiler, which needs one or two; zig at its first call, fifteen
ZIG = [sys.executable, "-m", "ziglang", "cc"]
# A parameter that a calling convention asks for may be unused.
FLAGS = (
    "-std=gnu11 -D_GNU_SOURCE -O3 -fPIC -shared -pthread -fvisibility=hidden "
    "-Wall -Wextra -Wno-unused-parameter"
).split()


def digest(folder: Path = HERE) -> str:
    """Return a digest of the C sources; it is compiled in, to tell a stale binary."""
    state = hashlib.blake2b(digest_size=8)
    for path in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        text = path.read_bytes()
        state.update(f"{path.name} {len(text)}\n".encode() + text)
    return state.hexdigest()


WHEELS = ("x86_64", "aarch64")  # processors that wheels are made for
GLIBC = "2.17"  # the oldest C library that they run on


def for_wheel(processor: str) -> list[str]:
    """Return the command of the compiler for a wheel: zig's, which knows every target."""
    return [*ZIG, "-s", "-target", f"{processor}-linux-gnu.{GLIBC}"]


def compilers() -> Iterator[list[str]]:
    """Yield the commands of the C compilers that are here: $CC, the system's, then zig's."""
    named = os.environ.get("CC", "").split()
    for command in [named, ["cc"], ["gcc"], ["clang"]]:
        if command and shutil.which(command[0]):
            yield command
    if importlib.util.find_spec("ziglang"):
        yield ZIG


def command(compiler: Sequence[str], to: Path, more: Sequence[str] = ()) -> list[str]:
    """Return the one call that compiles the sources into ``to``."""
    sources = sorted(map(str, HERE.glob("*.c")))
    return [*compiler, *FLAGS, *more, f'-DSOURCES="{digest()}"', *sources, "-o", str(to)]


def build(
    to: Path = BINARY, more: Sequence[str] = (), by: Sequence[Sequence[str]] | None = None
) -> str:
    """Compile into ``to``, which appears as a whole. Returns the compiler, in words.

    ``by``: the compilers to try; left out: those that are here.

    Raises RuntimeError with the compilers' messages, or where there is no compiler.
    """
    messages = []
    fresh = to.with_name(f"{to.name}.{os.getpid()}")
    for compiler in compilers() if by is None else by:
        try:
            done, words = _compile(command(compiler, fresh, more))
            if done:
                print(words, end="", file=sys.stderr)  # warnings
                fresh.replace(to)  # processes that loaded the old file keep it
                return " ".join(compiler)
        finally:
            fresh.unlink(missing_ok=True)
        messages.append(f"{' '.join(compiler)}: {words[-2000:]}")
    raise RuntimeError(
        "\n".join(messages) or "no C compiler here ($CC, cc, gcc, clang, or pip's ziglang)"
    )


def _compile(words: Sequence[str]) -> tuple[bool, str]:
    """Run the compiler, and end it with the programs that it has started where it takes too long.
    Returns whether it succeeded, and its messages.
    """
    with subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        errors="replace",
    ) as compiler:
        try:
            messages = compiler.communicate(timeout=DEADLINE)[1]
        except BaseException as error:
            os.killpg(compiler.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return False, f"it had not ended after {DEADLINE:g} s, and was killed"
    return compiler.returncode == 0, messages


if __name__ == "__main__":
    try:
        print(f"compiled the mover with {build()}: {BINARY}")
    except RuntimeError as error:
        BINARY.unlink(missing_ok=True)  # rather none than a stale one
        sys.exit(f"no compiled mover, so that Python does its work, slower. {error}")
