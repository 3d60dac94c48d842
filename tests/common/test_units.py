"""Quantities with a unit: what is read, what is refused, and that print and parse are inverses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.common import units
from workbench.common.errors import SpecError, WorkbenchError


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("5 ms", 5_000_000),
        ("20us", 20_000),
        ("20 µs", 20_000),  # U+00B5
        ("20 \u03bcs", 20_000),  # the Greek letter
        ("1 s", 10**9),
        ("30 s", 30 * 10**9),
        ("0.1 ms", 100_000),  # exact, although 0.1 is not a binary fraction
        ("1.5 min", 90 * 10**9),
        ("2 h", 7200 * 10**9),
        ("1e3 ns", 1000),
        (" 7 ns ", 7),
        ("0 ms", 0),
        ("0", 0),
        (0, 0),
    ],
)
def test_durations_are_whole_nanoseconds(text: object, nanoseconds: int) -> None:
    assert units.duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100 Mbit/s", 12.5e6),
        ("100 Mbps", 12.5e6),
        ("10 MB/s", 10e6),
        ("1 Gbit/s", 125e6),
        ("8 bit/s", 1.0),
        ("1 MiB/s", 2.0**20),
        ("unlimited", math.inf),
    ],
)
def test_bandwidths_are_bytes_per_second(text: str, rate: float) -> None:
    assert units.bytes_per_second(text) == rate


@pytest.mark.parametrize(
    ("text", "nbytes"), [("200 MB", 200_000_000), ("64 KiB", 65_536), ("1.5 kB", 1500), ("3 B", 3)]
)
def test_sizes_are_whole_bytes(text: str, nbytes: int) -> None:
    assert units.size_bytes(text) == nbytes


@pytest.mark.parametrize(
    ("parse", "wrong", "says"),
    [
        (units.duration_ns, 30, "no unit"),
        (units.duration_ns, "30", "no unit"),
        (units.duration_ns, "-5 ms", "negative"),
        (units.duration_ns, "5 parsec", "'parsec'"),
        (units.duration_ns, "5 Mbit/s", "'Mbit/s'"),
        (units.duration_ns, "soon", "not a duration"),
        (units.duration_ns, "", "not a duration"),
        (units.duration_ns, None, "not a duration"),
        (units.duration_ns, True, "not a duration"),
        (units.duration_ns, "1e300 h", "too large"),
        (units.duration_ns, "nan s", "not a duration"),
        (units.size_bytes, "200", "no unit"),
        (units.size_bytes, "200 M", "'M'"),
        (units.size_bytes, 200_000_000, "no unit"),
        (units.bytes_per_second, "100", "no unit"),
        (units.bytes_per_second, "100 Mb/s", "'Mb/s'"),  # megabits or megabytes?
        (units.bytes_per_second, "0 Mbit/s", "nothing through"),
        (units.bytes_per_second, "infinite", "not a bandwidth"),
    ],
)
def test_what_is_refused_shows_the_value_and_an_example(
    parse: Callable[[object], float], wrong: object, says: str
) -> None:
    with pytest.raises(SpecError, match=says) as refused:
        parse(wrong)
    assert isinstance(refused.value, WorkbenchError) and isinstance(refused.value, ValueError)
    assert str(wrong).strip() in str(refused.value)
    if says != "too large":
        assert any(example in str(refused.value) for example in ("5 ms", "200 MB", "100 Mbit/s"))


@given(st.integers(0, 2**62))
def test_a_printed_duration_parses_to_the_same_nanoseconds(nanoseconds: int) -> None:
    assert units.duration_ns(units.print_duration(nanoseconds)) == nanoseconds


@given(st.integers(0, 2**62))
def test_a_printed_size_parses_to_the_same_bytes(nbytes: int) -> None:
    assert units.size_bytes(units.print_size(nbytes)) == nbytes


@given(st.floats(min_value=1e-6, max_value=1e15) | st.just(math.inf))
def test_a_printed_bandwidth_parses_to_the_same_rate(rate: float) -> None:
    assert units.bytes_per_second(units.print_bandwidth(rate)) == rate


def test_what_is_counted_is_one_or_many() -> None:
    texts = [units.counted(number, "element") for number in (0, 1, 2, 2048)]
    assert texts == ["0 elements", "1 element", "2 elements", "2,048 elements"]
    assert units.counted(1, "batch") == "1 batch" and units.counted(3, "batch") == "3 batches"


def test_print_reads_as_people_write() -> None:
    assert units.print_duration(5_000_000) == "5 ms"
    assert units.print_duration(1_500) == "1.5 µs"
    assert units.print_duration(0) == "0 ns"
    assert units.print_bandwidth(12.5e6) == "100 Mbit/s"
    assert units.print_bandwidth(math.inf) == "unlimited"
    assert units.print_size(200_000_000) == "200 MB"
