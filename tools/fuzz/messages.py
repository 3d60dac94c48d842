"""Messages that a page might send: to a live run, and to the parts of the web app's pages."""

from __future__ import annotations

import random
import threading
from typing import Any

from tools.fuzz.made_up import from_a_page, text
from workbench.views.packing import Message
from workbench.views.pages.feed import feed

# Not those that end a rank, nor what a link would need days for: the run goes on afterwards.
_TAKES = {
    "pause": (),
    "resume": (),
    "step": ("count", "unit"),
    "slow_motion": ("factor",),
    "freeze": ("rank",),
    "thaw": ("rank",),
    "slow": ("rank", "factor"),
    "link": ("source", "target", "latency", "bandwidth", "down"),
}
_RIGHT = {
    "count": (1, 2),
    "unit": ("chunk", "step"),
    "factor": (1, 2.5),
    "rank": (0, 1),
    "source": (0, 1),
    "target": (0, 1),
    "latency": ("1 ms",),
    "bandwidth": ("1 Gbit/s",),
    "down": (True, False),
}


def message(chance: random.Random) -> Any:
    """Something that a page might say, most often of the right form, now and then right."""
    if chance.random() < 0.15:
        return from_a_page(chance)
    args: Any = {}
    verb = chance.choice([*_TAKES])
    for name in _TAKES[verb]:
        if chance.random() < 0.8:
            odd = chance.random() < 0.2
            args[name] = from_a_page(chance) if odd else chance.choice(_RIGHT[name])
    if chance.random() < 0.1:
        args = from_a_page(chance)
    elif chance.random() < 0.1:
        args[text(chance)] = from_a_page(chance)
    if isinstance(args, dict) and str(args.get("bandwidth", "")).startswith("1e-"):
        del args["bandwidth"]
    known = chance.random() < 0.9
    result = {"type": "do", "verb": verb if known else from_a_page(chance)}
    if chance.random() < 0.1:
        result["type"] = chance.choice(("hello", "do", from_a_page(chance)))
        result["token"] = from_a_page(chance)
    own = chance.choice((chance.randrange(10**6), from_a_page(chance)))
    if isinstance(own, str):  # the same text twice is the same command, sent again
        own += str(chance.random())
    return result | {"args": args, "id": own}


def is_answered(message: Any) -> bool:
    return isinstance(message, dict) and message.get("type") == "do"


class Listener:
    """A page that keeps what is said to it."""

    def __init__(self, run: Any, **how: Any) -> None:
        self.heard = threading.Condition()
        self.answers: list[Any] = []
        self.batches = 0
        self.page = feed(run).join(self._take, **how)

    def _take(self, message: Message) -> None:
        with self.heard:
            if message.header["type"] == "said":
                self.answers.append(message.header)
            else:
                self.batches += 1
            self.heard.notify_all()

    def until(self, condition: Any, seconds: float = 30.0) -> None:
        with self.heard:
            assert self.heard.wait_for(condition, seconds), f"not within {seconds} s"
