"""Needs of launchers on this machine, checked before anything starts: programs, packages, hosts."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.channel import leaves_this_machine
from workbench.launchers.processes.started_command import Command, program

ANSWER_S = 30.0  # seconds in which a host answers its remote shell
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@:-]*[A-Za-z0-9])?")


def need_program(launcher: str, name: str, remedy: str) -> str:
    """Return where a program is. Raises SpecError, with the remedy, where there is none."""
    path = program(name)
    if path is None:
        raise SpecError.at(
            "launcher",
            f"{launcher} needs the program {name}, and there is none beside this Python or on "
            f"PATH: {remedy}",
            launcher,
        )
    return path


def need_module(launcher: str, name: str, extra: str) -> None:
    """Raise SpecError where a package is not installed; ``extra`` of ours has it."""
    if find_spec(name) is None:
        raise SpecError.at(
            "launcher",
            f"{launcher} needs the package {name}, which is not installed here: "
            f"pip install 'distributed-training-workbench[{extra}]'",
            launcher,
        )


def check_hosts(exp: Experiment, hosts: Sequence[str], address: str) -> None:
    """Raise SpecError unless ranks divide over the hosts, and these know where the driver is."""
    for host in hosts:
        if not _HOST.fullmatch(host):  # it stands on a command line
            raise SpecError.at("launcher_options.hosts", "is not the name of a host", host)
    if hosts and exp.ranks % len(hosts):
        raise SpecError.at(
            "ranks",
            f"{len(hosts)} hosts get an equal number of ranks each, and {exp.ranks} does not "
            f"divide by {len(hosts)}",
            exp.ranks,
        )
    if hosts and not address:
        raise SpecError.at(
            "launcher_options.address",
            "ranks on other hosts call the driver: name an address of this machine by which they "
            "reach it, such as address='10.0.0.5'",
        )
    if address:
        check_address(address)


def check_address(address: str) -> None:
    """Raise SpecError unless the driver can listen at that address."""
    try:
        with socket.create_server((address, 0)):
            pass
    except (OSError, ValueError):
        raise SpecError.at(
            "launcher_options.address",
            "is not an address of this machine, such as 10.0.0.5: the driver listens there, "
            "and there alone",
            address,
        ) from None
    if leaves_this_machine(address) and find_spec("cryptography") is None:
        raise SpecError.at(
            "launcher_options.address",
            "other hosts are reached over TLS, for which this machine needs the package "
            "cryptography: pip install 'distributed-training-workbench[hosts]'",
            address,
        )


def check_reachable(ways: Mapping[str, Sequence[str]], remedy: str) -> None:
    """Raise SpecError, with every host that is not reached or that lacks this Python; all are asked
    at once. ``ways``: by host, the command that runs a shell there, which reads its input.
    """
    python = shlex.quote(sys.executable)
    question = f"if test -x {python}; then echo here; else echo there is no {python}; fi\n"
    deadline, problems = time.monotonic() + ANSWER_S, {}
    with contextlib.ExitStack() as stack:  # ends them with all they have started, also on Ctrl-C
        shells: dict[str, Command] = {}
        for host, words in ways.items():
            shells[host] = Command(words, {}, question)
            stack.callback(shells[host].close, 0.0)
        for host, shell in shells.items():
            shell.wait(max(0.1, deadline - time.monotonic()))
            end, lines = shell.end, shell.lines
            if not end:
                problems[host] = f"no answer within {ANSWER_S:.0f} s"
            elif "here" not in lines:
                # Without what mpiexec says of itself, after the remote shell's words.
                problems[host] = next((one for one in lines[::-1] if one[0] != "["), end)
    if problems:
        each = "; ".join(f"{host}: {answer}" for host, answer in problems.items())
        raise SpecError.at(
            "launcher_options.hosts",
            f"no ranks can be started on {each}. In a terminal, `{remedy}` has to work without a "
            "question",
            [*problems],
        )
