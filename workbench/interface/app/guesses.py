"""Wrong passwords, counted by the address that they come from: each one doubles the wait."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_WAIT = 1.0  # seconds after the first wrong one
LONGEST_WAIT = 900.0  # seconds
QUIET = 3600.0  # seconds after the end of its wait until an address starts again
MOST_ADDRESSES = 4096  # that are remembered: the one whose wait is over first makes room


@dataclass
class _Guesser:
    wrong: int = 0
    until: float = 0.0


class Guesses:
    """The addresses that must wait after wrong guesses, and how long.

    A wait begins with the wrong answer itself, so guesses that arrive together are one guess.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Guesser] = {}

    def __len__(self) -> int:
        return len(self._known)

    def wait(self, address: str) -> float:
        """Return for how many seconds nothing is taken from this address."""
        known = self._known.get(network(address))
        return max(0.0, known.until - self._clock()) if known else 0.0

    def wrong(self, address: str) -> None:
        """Count a wrong password."""
        now, name = self._clock(), network(address)
        known = self._known.get(name)
        if known is None or now - known.until > QUIET:
            self._make_room(name)
            known = self._known[name] = _Guesser()
        known.wrong += 1
        known.until = now + min(FIRST_WAIT * 2 ** min(known.wrong - 1, 30), LONGEST_WAIT)

    def right(self, address: str) -> None:
        """Forget the wrong guesses of this address: its user knows a password."""
        self._known.pop(network(address), None)

    def _make_room(self, name: str) -> None:
        if name not in self._known and len(self._known) >= MOST_ADDRESSES:
            del self._known[min(self._known, key=lambda one: self._known[one].until)]


def network(address: str) -> str:
    """Return an IPv4 address as it is, of an IPv6 address its network: one host owns it all."""
    try:
        result = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(result, ipaddress.IPv6Address):
        if result.ipv4_mapped:
            return str(result.ipv4_mapped)
        return str(ipaddress.ip_network((int(result), 64), strict=False))
    return str(result)
