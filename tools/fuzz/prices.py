"""Links and forms that are made to cost a server much: nested, endless, with enormous numbers."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

from tests.interface.app.priced import Priced
from tools.fuzz.family import Family
from tools.fuzz.made_up import text, value
from workbench.experiment.spec import Experiment
from workbench.interface import form

MOST_MS = 50
PIECES = (
    "[",
    "{",
    "- ",
    "? ",
    "[a, ",
    "{a: ",
    "{? ",
    "[[], ",
    "{}, ",
    "&a [",
    "*a, ",
    "!!int ",
    "'",
    '"',
    "\\",
    "|\n ",
    "1",
    ":1",
    "_1",
    "1.",
    "e1",
    "0x",
    "#\n",
    "\n",
    "a: 1\n",
    "0->1: {}, ",
    "0->1: 5 ms\n",
    "kill rank 0 at 1;",
    "0F0 ",
    "[0, 1], ",
    "9 x ",
    "a.py:",
    " = ",
    "é",
    "\u2028",
)
PLACES = (
    "{}",
    "a: {}",
    "options: {{graph: {}}}",
    "options: {{schedule: {}}}",
    "task_options: {{a: {}}}",
    "network: {{links: {{{}}}}}",
    "network: {{levels: [{}]}}",
    "faults: [{}]",
    "ranks: {}",
    "strategy: {}",
    "network: {{latency: {}}}",
    "pad_compute: {}",
    "{}: 1",
)


def number(chance: random.Random) -> int:
    return chance.choice(
        (
            chance.randrange(-2, 20),
            chance.randrange(10**18),
            10 ** chance.randrange(19),
            2 ** chance.randrange(63),
            16,
            17,
            1024,
            1025,
        )
    )


def long_text(chance: random.Random, most: int) -> str:
    """A piece again and again, now and then a few by turns."""
    pieces = [chance.choice(PIECES) for _ in range(chance.choice((1, 1, 2, 3)))]
    return ("".join(pieces) * (most // len("".join(pieces))))[: chance.randrange(1, most)]


def fields(chance: random.Random) -> dict[str, Any]:
    """An experiment of one strategy, with numbers of any size where it has numbers."""
    known = form.fields()
    strategy = chance.choice([*next(one.choices for one in known if one.name == "strategy")])
    result: dict[str, Any] = {"strategy": strategy}
    for one in known:
        if (one.strategies and strategy not in one.strategies) or chance.random() < 0.6:
            continue
        if one.kind in ("int", "float"):
            result[one.name] = number(chance)
        elif one.choices and one.name != "strategy":
            result[one.name] = chance.choice(one.choices)
        elif one.kind == "text":
            result[one.name] = chance.choice((long_text(chance, 4_000), text(chance)))
    return result


def link(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        text_of_spec = chance.choice(PLACES).format(long_text(chance, 65_000))
    else:
        spec: dict[str, Any] = {"options": {}, "network": {}}
        for name, one in fields(chance).items():
            if isinstance(one, str) and chance.random() < 0.5:
                one = [[number(chance), number(chance)]] * chance.randrange(1, 4_000)
            part, _, key = name.rpartition(".")
            (spec[part] if part else spec)[key] = one
        text_of_spec = json.dumps(spec)  # which is YAML
    return {"link": _packed(text_of_spec)}


def packed(spec: dict[str, Any]) -> str:
    """A spec as a link; JSON is YAML."""
    return _packed(json.dumps(spec))


def _packed(text_of_spec: str) -> str:
    data = text_of_spec.encode(errors="replace")
    return base64.urlsafe_b64encode(zlib.compress(data, 9)).decode().rstrip("=")


def values(chance: random.Random) -> dict[str, Any]:
    result = form.values(Experiment()) | fields(chance)
    if chance.random() < 0.2:
        result[text(chance)] = value(chance)
    try:
        json.dumps(result)
    except ValueError:  # a number of 5,000 digits: no page can send it
        return values(chance)
    return {"values": result}


@contextlib.contextmanager
def families() -> Iterator[dict[str, Family]]:
    priced = Priced()

    def costs_little(case: dict[str, Any]) -> None:
        ms, answer = priced.price(case)
        assert ms <= MOST_MS, (ms, answer[:300])

    try:
        yield {
            "costly_link": Family(link, costs_little),
            "costly_form": Family(values, costs_little),
        }
    finally:
        priced.close()
