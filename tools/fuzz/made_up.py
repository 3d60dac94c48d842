"""Values that no user would write on purpose, from a seed; tests only."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**400,
    10**5000,
    0.0,
    -0.0,
    1e-320,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    0.5,
    "",
    " ",
    "0",
    "8",
    "-1",
    "nan",
    "inf",
    "1e999",
    "9" * 400,
    "a" * 5000,
    "\0",
    "\ud800",
    "\n",
    "é\u2028",
    "- x",
    "a: b",
    "0->1",
    "1->0: 5 ms",
    "kill rank 1 at 3",
    "5 ms",
    "-5 ms",
    "1e-300 bit/s",
    "unlimited",
    "200 MB",
    "ring",
    "bsp",
    "auto",
    "ddp",
    "no_such.py:Thing",
    "/dev/zero",
    "__class__",
    "../../etc/passwd",
    "{}",
    "[]",
    "%s%n",
    "<b>",
    [],
    {},
    [[]],
    {"": {}},
    {"name": "f", "code": "raise SystemExit"},
    {"latency": "1 ms"},
    [1, 2, 3],
    ["chunk"],
)


def value(chance: random.Random, depth: int = 2) -> Any:
    """Something, most often of another type than is asked for."""
    what = chance.random()
    if depth and what < 0.1:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if depth and what < 0.2:
        return {text(chance): value(chance, depth - 1) for _ in range(chance.randrange(4))}
    if what < 0.3:
        return chance.choice((chance.randrange(-3, 20), chance.uniform(-2, 20), text(chance)))
    return chance.choice(NASTY)


def text(chance: random.Random) -> str:
    letters = "abcdefgxyz012389 .:->_\n\t\"'{}[]()&*!|%#@,é\u2028"
    return "".join(chance.choice(letters) for _ in range(chance.randrange(12)))


def from_a_page(chance: random.Random) -> Any:
    """The same as a page can send it: what JSON knows."""
    while True:
        try:
            return json.loads(json.dumps(value(chance)))
        except ValueError:  # a number of 5,000 digits
            continue


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with a bit or some bytes changed, a stretch cut out, doubled or moved, or the end
    missing; now and then what is left as it is.
    """
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        if not changed:
            break
        at, length = chance.randrange(len(changed)), chance.choice((1, 4, 8, 64, 4096))
        match chance.randrange(7):
            case 0 | 1:
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                changed[at : at + length] = chance.randbytes(len(changed[at : at + length]))
            case 3:
                filler = chance.choice((b"\0", b"\xff", b"\x7f", b"\x80"))
                changed[at : at + length] = filler * len(changed[at : at + length])
            case 4:
                del changed[at : at + length]
            case 5:
                changed[at:at] = changed[at : at + length]
            case 6:
                del changed[at:]
    return bytes(changed)


def json_text(tree: Any, otherwise: str) -> bytes:
    """Return the tree as JSON; if Python prints no number so long, 5,000 digits after
    ``otherwise``, which names the place for them with {}.
    """
    try:
        return json.dumps(tree).encode()
    except ValueError:
        return otherwise.replace("{}", "9" * 5_000).encode()


def put_no_file(path: Path, what: str) -> None:
    """Put a pipe, a folder or a link to itself where a file is expected."""
    match what:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
