"""Costs: kept, sent, read; and what they say between what was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.choosing import costs as module
from workbench.choosing.costs import (
    Costs,
    Links,
    Machine,
    cores,
    links_of,
    load,
    place,
    save,
    sizes_between,
)
from workbench.experiment.spec import Link, Network

TWO, FOUR = Machine(1e-6, 2e-6, 3e-10, 4e-11, 5e-5), Machine(2e-6, 4e-6, 6e-10, 8e-11, 7e-5)
OWN = Costs(
    {2: TWO, 4: FOUR},
    {("all_reduce", "ring", 4): ((1024, 2.0), (16384, 8.0))},
    Links(1e-3, 1e-8, ((0, 1, 2e-3, 0.0),)),
    4096,
    cores(),
    "made by hand",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("WORKBENCH_COSTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_costs_in_words_are_per_wait_and_per_byte() -> None:
    assert TWO.words == (
        "α 1.0 µs per wait, 2.0 µs at each end of a message, β 0.300 ns per byte sent, "
        "γ 0.040 ns per byte added"
    )


def test_they_are_the_same_after_they_were_sent() -> None:
    assert Costs.from_json(OWN.to_json()) == OWN
    assert Costs.from_json(OWN.to_json()).machine(4) == FOUR


def test_a_users_own_are_kept_and_read(folder: Path) -> None:
    assert load().source != OWN.source
    assert save(OWN) == folder / "workbench" / "costs.json" == place()
    assert load() == OWN
    assert [file.name for file in place().parent.iterdir()] == ["costs.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 2}', '{"version": 99}'])
def test_a_damaged_file_is_as_none(folder: Path, text: str) -> None:
    place().parent.mkdir()
    place().write_text(text)
    assert "shipped" in load().source
    with pytest.raises(ValueError):
        Costs.from_json(text)


def test_those_of_another_version_are_left_aside(folder: Path) -> None:
    """Version 1 had factors against calls in a row."""
    place().parent.mkdir()
    place().write_text(OWN.to_json().replace('"version": 2', '"version": 1'))
    assert "shipped" in load().source
    with pytest.raises(ValueError, match="version 1, not 2"):
        Costs.from_json(place().read_text())


def test_those_of_another_machine_are_left_aside(folder: Path) -> None:
    save(replace(OWN, cores=cores() + 1))
    assert "shipped" in load().source


def test_the_environment_names_another_file_or_the_shipped_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(OWN)
    monkeypatch.setenv("WORKBENCH_COSTS", str(folder / "other.json"))
    assert "shipped" in load().source
    save(OWN)
    assert (folder / "other.json").exists() and load() == OWN
    monkeypatch.setenv("WORKBENCH_COSTS", "shipped")
    assert "shipped" in load().source


def test_no_folder_at_all_is_not_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    assert "shipped" in load().source


def test_another_number_of_ranks_is_as_the_nearest_with_cores_shared() -> None:
    on_two = replace(OWN, cores=2)
    assert on_two.machine(2) == TWO
    eight = on_two.machine(8)  # twice as many as four on the same two cores
    assert eight.overhead_s == 2 * FOUR.overhead_s
    assert eight.wake_s == FOUR.wake_s  # sleep needs no core
    assert replace(OWN, cores=64).machine(8) == FOUR


def test_between_sizes_a_factor_is_on_a_line_of_logarithms() -> None:
    def at(nbytes: int, n: int = 4, name: str = "ring") -> float:
        return OWN.factor("all_reduce", name, n, nbytes)

    assert (at(1024), at(16384)) == pytest.approx((2.0, 8.0))
    assert at(4096) == pytest.approx(4.0)
    assert (at(16), at(1 << 26)) == (2.0, 8.0)  # beyond, as at the ends
    assert at(1024, n=8) == 2.0
    assert at(1024, name="tree") == 1.0


def test_links_are_those_of_the_network() -> None:
    network = Network(
        latency="1 ms", bandwidth="80 Mbit/s", links={(1, 0): Link(bandwidth="unlimited")}
    )
    assert links_of(network, 3) == Links(1e-3, 1e-7, ((1, 0, 1e-3, 0.0),))
    assert links_of(network, 1).pairs == ()
    assert not links_of(Network(), 4).paced and links_of(network, 4).paced


def test_sizes_are_whole_floats_and_reach_the_end() -> None:
    sizes = sizes_between(1024, 1 << 20)
    assert sizes[0] == 1024 and sizes[-1] == 1 << 20 and len(sizes) == 6
    odd = sizes_between(1000, 50_000, (50_000 / 1000) ** (1 / 3))
    assert len(odd) == 4 and all(size % 4 == 0 for size in odd)
    assert math.isclose(odd[-1], 50_000, rel_tol=1e-3)


def test_another_machines_are_taken_with_these_cores_and_without_what_was_its_own() -> None:
    assert module.adapt(OWN) is OWN
    theirs = replace(OWN, cores=cores() + 3)
    assert module.adapt(theirs) == replace(OWN, off={})


def test_the_shipped_ones_are_whole() -> None:
    shipped = Costs.from_json(module.default_costs())
    assert shipped.slot_bytes == module.SLOT_BYTES
    for n in (2, 3, 4, 8):
        assert shipped.machine(n).overhead_s > 0 and shipped.machine(n).beta_s_per_byte > 0
