"""The compiled mover: built without a warning, of today's sources, and refused when it is stale."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.live import gone, until
from tests.pairwise import first
from workbench import native
from workbench.common.errors import SpecError
from workbench.native import build

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with a binary of its own."""
    copy = tmp_path_factory.mktemp("built") / "native"
    shutil.copytree(build.HERE, copy, ignore=shutil.ignore_patterns("*.so", "*.py", "__pycache__"))
    build.build(copy / native.BINARY)
    return copy


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """The same, which may be broken."""
    return Path(shutil.copytree(built, tmp_path / "native"))


@pytest.mark.parametrize("compiler", first(1, build.compilers()))
def test_the_sources_compile_without_a_warning(compiler: list[str], tmp_path: Path) -> None:
    """By every compiler that is here."""
    command = build.command(compiler, tmp_path / "mover.so", ["-Werror"])
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_compiler_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it has started, which holds its output open."""
    monkeypatch.setattr(build, "DEADLINE", 2.0)
    number = tmp_path / "pid"
    hangs = tmp_path / "hangs"
    hangs.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {number}\nsleep 1000\n")
    hangs.chmod(0o755)
    with pytest.raises(RuntimeError, match=rf"{hangs}: it had not ended after 2 s, and was killed"):
        build.build(tmp_path / "mover.so", by=[[str(hangs)]])
    until(lambda: gone([int(number.read_text())]), 10, "what it has started is gone")
    assert not [*tmp_path.glob("mover.so*")]


@pytest.mark.full
@pytest.mark.parametrize(("processor", "machine"), [("x86_64", 62), ("aarch64", 183)])
def test_zig_compiles_what_goes_into_a_wheel(processor: str, machine: int, tmp_path: Path) -> None:
    """For each processor, and for C libraries as old as a wheel's name says."""
    pytest.importorskip("ziglang", reason="pip brings it for `make wheels`")
    binary = tmp_path / "mover.so"
    build.build(binary, ["-Werror"], by=[build.for_wheel(processor)])
    code = binary.read_bytes()
    assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == machine
    versions = {tuple(map(int, one)) for one in re.findall(rb"GLIBC_(\d+)\.(\d+)", code)}
    assert max(versions) <= tuple(map(int, build.GLIBC.split(".")))


@pytest.mark.full
def test_a_fresh_binary_is_used_and_a_stale_one_is_not(folder: Path) -> None:
    fresh = native.load(folder)
    assert fresh.module is not None and fresh.reason == ""
    (folder / "module.c").open("a").write("/* changed since */\n")
    assert native.load(folder).module is None
    assert native.load(folder).reason.startswith("it is older than its sources; `make mover`")


def test_without_a_binary_or_with_one_that_cannot_be_loaded_there_is_none(folder: Path) -> None:
    binary = folder / native.BINARY
    binary.unlink()
    assert native.load(folder).reason.startswith("it was not compiled")
    binary.write_text("not a library")
    assert native.load(folder).reason.startswith("it cannot be loaded")


def test_where_it_is_asked_for_and_is_not_there_the_first_import_of_it_says_so() -> None:
    code = "import sys; from workbench import native; sys.abiflags = 't'; native.compiled()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"WORKBENCH_MOVER": "c"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode
    assert "WORKBENCH_MOVER=c asks for the compiled mover: a free-threaded Python" in done.stderr


def test_the_variable_decides() -> None:
    assert native._chosen("python").module is None
    assert "WORKBENCH_MOVER=python asks for it" in native._chosen("python").reason
    assert native._chosen("c").module is not None, "run `make mover`"
    assert native._chosen("").module is not None and native._chosen("").reason == ""
    with pytest.raises(SpecError, match="WORKBENCH_MOVER='rust': it takes c or python"):
        native._chosen("rust")


def test_a_free_threaded_python_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "abiflags", "t")
    assert native.load(build.HERE).reason.startswith("a free-threaded Python")


def test_a_failed_build_says_what_the_compiler_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="no-such-option"):
        build.build(tmp_path / "mover.so", ["--no-such-option"])
    monkeypatch.setattr(build, "compilers", lambda: iter(()))
    with pytest.raises(RuntimeError, match="no C compiler"):
        build.build(tmp_path / "mover.so")
    assert list(tmp_path.iterdir()) == []


NUMBERS = (
    "PyBUF_SIMPLE PyBUF_WRITABLE PyBUF_FORMAT PyBUF_CONTIG_RO METH_VARARGS METH_KEYWORDS "
    "METH_NOARGS METH_O METH_FASTCALL T_LONGLONG Py_tp_alloc Py_tp_dealloc Py_tp_doc Py_tp_methods "
    "Py_tp_new Py_tp_members Py_tp_free Py_TPFLAGS_DEFAULT Py_TPFLAGS_LONG_SUBCLASS "
    "Py_TPFLAGS_LIST_SUBCLASS Py_TPFLAGS_UNICODE_SUBCLASS"
).split()
TYPES = "PyObject Py_buffer PyMethodDef PyMemberDef PyType_Slot PyType_Spec PyModuleDef"
PROBE = """
#define PY_SSIZE_T_CLEAN
#include HEADER
#ifdef Py_PYTHON_H
#include <structmember.h>
#endif
#include <stdio.h>
#include <stddef.h>
int main(void) {
"""


def layout(header: str, folder: Path, *options: str) -> list[str]:
    """Compile a program against a header; return the numbers and sizes that it sees there."""
    lines = [f'printf("{name} %lld\\n", (long long){name});' for name in NUMBERS]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in TYPES.split()]
    fields = "buf obj len itemsize readonly ndim format shape strides suboffsets internal".split()
    lines += [f'printf("{name} %zu\\n", offsetof(Py_buffer, {name}));' for name in fields]
    source = folder / "probe.c"
    source.write_text(PROBE + "\n".join(lines) + "\nreturn 0; }\n")
    compiler = next(build.compilers())
    program = folder / "probe"
    done = subprocess.run(
        [*compiler, f"-DHEADER={header}", *options, str(source), "-o", str(program)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True).stdout.splitlines()


def test_our_declarations_are_those_of_python_h(tmp_path: Path) -> None:
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip("this Python has no Python.h")
    theirs = layout("<Python.h>", tmp_path, "-DPy_LIMITED_API=0x030B0000", f"-I{include}")
    ours = layout('"abi3.h"', tmp_path, f"-I{build.HERE}")
    assert len(ours) > 35 and ours == theirs
