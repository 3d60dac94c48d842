"""Input from outside as plain data: specs, links, forms, lines of cells, bytes of a socket."""

from __future__ import annotations

import base64
import contextlib
import random
import socket
import time
import zlib
from typing import Any

from IPython.core.error import UsageError

from tools.fuzz.family import Family
from tools.fuzz.made_up import damaged, from_a_page, text, value
from workbench.cells import magics
from workbench.common import ipc
from workbench.common.errors import PeerLost, SpecError, WorkbenchError
from workbench.experiment import web_link
from workbench.experiment.spec import Experiment, Network
from workbench.interface import form
from workbench.interface.app.limits import Limits, Refused
from workbench.interface.app.start import plain
from workbench.transports.peer_page import TEXT_BYTES, read_alarm, write_alarm

SPEC: dict[str, Any] = {
    "strategy": "data_parallel",
    "task": "lenet_digits",
    "ranks": 4,
    "iterations": 20,
    "batch_size": 64,
    "seed": 3,
    "optimizer": "adam",
    "lr": 0.01,
    "dtype": "float64",
    "all_reduce": "ring",
    "chunk_bytes": 4096,
    "timeout": "20 s",
    "device": "cpu",
    "threads": 1,
    "network": {"latency": "1 ms", "bandwidth": "1 Gbit/s", "links": {"0->1": {"latency": "5 ms"}}},
    "faults": [{"fault": "kill", "rank": 1, "at_iteration": 3}],
    "pad_compute": "2 ms",
    "memory_limit": "1 GB",
    "options": {},
    "task_options": {},
    "momentum": 0.0,
    "record": True,
}


def holds(exp: Experiment) -> None:
    """An Experiment that was taken is whole: it is the same after it was written and read."""
    text = exp.to_yaml()
    assert Experiment.from_yaml(text + "\n", allow_code=True) == exp, text
    assert Experiment.from_json(exp.to_json()) == exp


def spec_of_values(chance: random.Random) -> dict[str, Any]:
    """A spec in which some values are something else, or fields are missing or more."""
    spec = dict(SPEC)
    for _ in range(chance.choice((1, 1, 2, 4))):
        match chance.randrange(8):
            case 0:
                spec.pop(chance.choice([*spec]))
            case 1:
                spec[text(chance)] = value(chance)
            case 2:
                part = (
                    dict(spec.get("network") or {}) if isinstance(spec.get("network"), dict) else {}
                )
                spec["network"] = part | {chance.choice([*Network.model_fields]): value(chance)}
            case 3:
                spec["faults"] = [{chance.choice(("fault", "rank", "factor")): value(chance)}]
            case _:
                spec[chance.choice([*Experiment.model_fields])] = value(chance)
    return spec


def made_of_values(spec: dict[str, Any]) -> None:
    with contextlib.suppress(SpecError):
        holds(Experiment(**spec))


def spec_of_text(chance: random.Random) -> str:
    """A spec's YAML with letters changed, or no YAML at all."""
    whole = Experiment(**SPEC).to_yaml()
    match chance.randrange(4):
        case 0:
            return damaged(whole.encode(), chance).decode(errors="replace")
        case 1:
            return text(chance) * chance.choice((1, 1, 3, 2000))
        case 2:
            lines = whole.splitlines(keepends=True)
            chance.shuffle(lines)
            return "".join(lines)
        case _:
            odd = chance.choice(
                (
                    "&a [*a]",
                    "*b",
                    "!!python/object/apply:os.system [ls]",
                    "2001-99-99",
                    "!!int x",
                    "!!binary x",
                    "[" * 5000,
                    "{" * 500,
                    "? ? ?",
                    "0x" + "f" * 6000,
                    "!!timestamp x",
                    "&x {a: &y [1], b: *y, c: *x}",
                    "<<: 3",
                    "!!set {a, b}",
                    "'",
                    "\0",
                    "\ud800",
                    "2001-01-01",
                    "1:2:3",
                    "0b" + "1" * 20000,
                    "9" * 6000,
                    ".inf",
                    "!!merge x",
                )
            )
            return f"{whole}{chance.choice([*SPEC])}: {odd}\n"


def made_of_text(yaml_text: str) -> None:
    with contextlib.suppress(SpecError):
        holds(Experiment.from_yaml(yaml_text))


def link(chance: random.Random) -> str:
    """A link that was changed on its way, or carries something else."""
    link_text = web_link.to_link(Experiment(**SPEC))
    match chance.randrange(3):
        case 0:
            return damaged(link_text.encode(), chance).decode(errors="replace")
        case 1:
            packed = zlib.compress(damaged(Experiment(**SPEC).to_yaml().encode(), chance))
            return base64.urlsafe_b64encode(packed).decode()
        case _:
            return text(chance)


def made_of_a_link(link_text: str) -> None:
    with contextlib.suppress(SpecError):
        exp = web_link.from_link(link_text)
        assert not exp.carries_code
        holds(exp)


def form_values(chance: random.Random) -> dict[str, Any]:
    """A form's values as a page sends them, some of them something else."""
    entries = form.values(Experiment(**SPEC))
    for _ in range(chance.choice((1, 1, 3))):
        entries[chance.choice([*entries, text(chance)])] = from_a_page(chance)
    return entries


def made_of_a_form(entries: dict[str, Any]) -> None:
    with contextlib.suppress(SpecError):
        holds(form.experiment(entries))
    with contextlib.suppress(SpecError, Refused):
        exp = form.experiment(plain(entries))
        Limits().check(exp)
        assert not exp.carries_code


def line_of_a_cell(chance: random.Random) -> str:
    """Return what stands behind %%ranks."""
    words = (
        "4",
        "0,2",
        "1-3",
        "3-1",
        "0-",
        "-1",
        "1-99999999999",
        "9" * 5000,
        "٣",
        "2,",
        ",",
        "0",
        "--bare",
        "--end",
        "--no-stage",
        "--as team",
        "--as=x",
        "--as 3",
        "--timeout '5 min'",
        "--timeout=never",
        "--timeout",
        "--bar",
        "--as",
        text(chance),
        text(chance),
    )
    return " ".join(chance.choice(words) for _ in range(chance.choice((1, 1, 2, 3, 6))))


def asked_of_ranks(line: str) -> None:
    with contextlib.suppress(UsageError):
        request = magics.parse(line)
        assert len(request.some) <= 1000 and 0 <= (request.size or 0) < 1000


def message_of_a_process(chance: random.Random) -> bytes:
    """Bytes on a rank's or the driver's socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ipc.send(theirs, {"step": 1, "name": "é"}, b"12345678")
        return damaged(ours.recv(1 << 16), chance)[: 1 << 16]


def received(data: bytes) -> None:
    """A message of ours, or the connection is bad."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        theirs.settimeout(5)
        theirs.sendall(data)
        theirs.close()
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while (message := ipc.receive(ours)) is not None:
                assert isinstance(message[0], dict)
        assert time.monotonic() - began < 5


def alarm(chance: random.Random) -> tuple[int, str, str, bytes]:
    """Return what a rank leaves on a peer's page, and other bytes that stand there."""
    words = chance.choice(("", "lost", "é" * 3000, "\0" * 900, '"' * 1000, "\U0001f600" * 1000))
    rank, more = chance.choice((0, 3, -1)), text(chance)
    return rank, words, more, damaged(write_alarm(PeerLost(words + more, rank)), chance)


def heard(alarm: tuple[int, str, str, bytes]) -> None:
    rank, words, more, changed = alarm
    data = write_alarm(PeerLost(words + more, rank))
    assert len(data) <= TEXT_BYTES - 8
    read = read_alarm(data)
    assert type(read) is PeerLost and (words + "x").startswith(str(read)[: len(words)])
    read = read_alarm(changed)
    assert isinstance(read, WorkbenchError) and isinstance(read.rank, int)


FAMILIES = {
    "spec_of_values": Family(spec_of_values, made_of_values),
    "spec_of_text": Family(spec_of_text, made_of_text),
    "link": Family(link, made_of_a_link),
    "form_values": Family(form_values, made_of_a_form),
    "line_of_a_cell": Family(line_of_a_cell, asked_of_ranks),
    "message_of_a_process": Family(message_of_a_process, received),
    "alarm": Family(alarm, heard),
}
