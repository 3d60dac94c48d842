"""Quantities as people write them: "5 ms", "100 Mbit/s", "200 MB".

A duration becomes whole nanoseconds, a bandwidth bytes per second, a size whole bytes. Decimal
prefixes are powers of 1000 (1 Mbit = 10^6 bits = 125,000 bytes), KiB, MiB, GiB and TiB powers of
1024. A number without a unit is refused, because its meaning would be a guess; only 0 is the same
in every unit.

    duration_ns("5 ms") = 5_000_000        print_duration(5_000_000) = "5 ms"
    bytes_per_second("10 Mbit/s") = 1.25e6 print_bandwidth(1.25e6) = "10 Mbit/s"
    size_bytes("64 KiB") = 65_536          print_size(65_536) = "65.536 kB"

What is printed parses to the very same number. ``counted`` words how many there are of something.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from workbench.common.errors import SpecError

_NUMBER_AND_UNIT = re.compile(
    r"(?P<number>[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(?P<unit>\D.*)?"
)
_MICROSECONDS = re.compile(r"(?<=\d)\s*(?:us|μs|µs)\b")
_LONGEST = 100  # characters of a number and its unit
_LARGEST = 2**63 - 1  # what the 64-bit words of the control block and of the records hold

DURATIONS: Mapping[str, Decimal] = {
    "ns": Decimal(1),
    "us": Decimal(10**3),
    "ms": Decimal(10**6),
    "s": Decimal(10**9),
    "min": Decimal(60 * 10**9),
    "h": Decimal(3600 * 10**9),
}
SIZES: Mapping[str, Decimal] = {
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "TB": Decimal(10**12),
    "KiB": Decimal(2**10),
    "MiB": Decimal(2**20),
    "GiB": Decimal(2**30),
    "TiB": Decimal(2**40),
}
BANDWIDTHS: Mapping[str, Decimal] = {
    **{
        f"{prefix}bit/s": Decimal(10**power) / 8
        for prefix, power in (("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12))
    },
    **{f"{size}/s": scale for size, scale in SIZES.items()},
}
_OTHER_SPELLINGS = {
    "µs": "us",  # U+00B5, the micro sign
    "μs": "us",  # U+03BC, the Greek letter
    "sec": "s",
    "KB": "kB",
    "KB/s": "kB/s",
    "bps": "bit/s",
    "kbps": "kbit/s",
    "Mbps": "Mbit/s",
    "Gbps": "Gbit/s",
}


def duration_ns(value: object) -> int:
    """Return the whole nanoseconds of a duration such as "5 ms", "20us" or "30 s".

    Raises SpecError.
    """
    return round(_parse(value, DURATIONS, "duration", "'5 ms', '20 µs' or '30 s'"))


def size_bytes(value: object) -> int:
    """Return the whole bytes of a size such as "200 MB" or "64 KiB". Raises SpecError."""
    return round(_parse(value, SIZES, "size", "'200 MB' or '64 KiB'"))


def bytes_per_second(value: object) -> float:
    """Return bytes per second of "100 Mbit/s" or "10 MB/s"; infinity for "unlimited".

    Raises SpecError.
    """
    if isinstance(value, str) and value.strip() == "unlimited":
        return math.inf
    examples = "'100 Mbit/s', '10 MB/s' or 'unlimited'"
    rate = float(_parse(value, BANDWIDTHS, "bandwidth", examples))
    if rate == 0:
        raise SpecError(
            f"bandwidth {value!r} lets nothing through: write more than 0, such as {examples}, "
            "or set down to cut the link"
        )
    return rate


def print_duration(nanoseconds: int) -> str:
    """Return the duration in the largest of ns, µs, ms, s in which it is at least 1: "1.5 ms"."""
    return micro(_print(Decimal(nanoseconds), DURATIONS, ("s", "ms", "us", "ns")))


def print_seconds(seconds: float) -> str:
    """Return e.g. "350 µs"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def micro(text: str) -> str:
    """Return the text with microseconds as pages write them: "20us" is "20 µs"."""
    return _MICROSECONDS.sub(" µs", text)


def print_size(nbytes: int) -> str:
    """Return the size with a decimal prefix: 200_000_000 is "200 MB"."""
    return _print(Decimal(nbytes), SIZES, ("TB", "GB", "MB", "kB", "B"))


def print_bandwidth(rate: float) -> str:
    """Return bytes per second in bits: 12.5e6 is "100 Mbit/s", infinity "unlimited"."""
    if math.isinf(rate):
        return "unlimited"
    units = ("Tbit/s", "Gbit/s", "Mbit/s", "kbit/s", "bit/s")
    return _print(Decimal(repr(float(rate))), BANDWIDTHS, units)


def counted(number: int, what: str) -> str:
    """Return a number with its noun: "1 element", "2,048 elements", "3 batches"."""
    many = f"{what}{'es' if what.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
    return f"{number:,} {what if number == 1 else many}"


def _parse(value: object, units: Mapping[str, Decimal], what: str, examples: str) -> Decimal:
    """Return the number in base units; ``what`` and ``examples`` are for the SpecError."""
    allowed = f"write a number and a unit, such as {examples}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    if isinstance(value, str) and len(value) > _LONGEST:
        raise SpecError(f"a {what} of {len(value):,} characters is none: {allowed}")
    match = _NUMBER_AND_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise SpecError(f"{value!r} is not a {what}: {allowed}")
    number, unit = Decimal(match["number"]), (match["unit"] or "").strip()
    if number < 0:
        raise SpecError(f"{what} {value!r} is negative: {allowed}")
    if number == 0 and not unit:
        return number
    if not unit:
        raise SpecError(f"{what} {value!r} has no unit: {allowed}")
    scale = units.get(_OTHER_SPELLINGS.get(unit, unit))
    if scale is None:
        raise SpecError(
            f"{what} {value!r}: the unit {unit!r} is not known; {allowed}. "
            f"Units: {', '.join(units).replace('us', 'µs')}"
        )
    if number > _LARGEST / scale:
        raise SpecError(
            f"{what} {value!r} is too large: the most is {_LARGEST:.2g} {next(iter(units))}"
        )
    return number * scale


def _print(value: Decimal, units: Mapping[str, Decimal], names: tuple[str, ...]) -> str:
    unit = next((name for name in names if value >= units[name]), names[-1])
    number = format((value / units[unit]).normalize(), "f")  # "f": never 1E+2
    return f"{number} {unit}"
