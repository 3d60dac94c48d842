"""Which sample goes to which rank: the known cases, and laws over torch's own samplers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    SequentialSampler,
    TensorDataset,
)

import workbench as wb
from workbench.rank.batches import Minibatches, partition
from workbench.training.sampling.minibatches import epoch_of

sizes = st.integers(1, 60)


def held(partition: wb.Partition) -> dict[str, bool]:
    return {law.name: law.holds for law in partition.laws()}


def words(partition: wb.Partition) -> dict[str, str]:
    return {law.name: law.words for law in partition.laws()}


# ---- the cases of the sources


def test_the_second_minibatch_of_24_samples_in_order() -> None:
    second = wb.partition(24, batch_size=8, ranks=2).minibatches[1]
    assert second.of == ((8, 10, 12, 14), (9, 11, 13, 15))
    assert second.sequential == (8, 9, 10, 11, 12, 13, 14, 15) and second.equal
    assert wb.partition().minibatches[1] == second, "it is what one gets without asking"


def test_the_second_minibatch_of_a_permutation() -> None:
    places = [10, 8, 17, 15, 1, 7, 23, 14]  # 8 to 15
    others = [i for i in range(24) if i not in places]
    partition = wb.partition([*others[:8], *places, *others[8:]], 8, 2)
    assert partition.minibatches[1].of == ((10, 17, 1, 23), (8, 15, 7, 14))
    assert partition.equal


def test_ten_samples_over_four_ranks_repeat_the_first_two() -> None:
    partition = wb.partition(10, batch_size=4, ranks=4)
    last = partition.minibatches[-1]
    assert last.of == ((8,), (9,), (0,), (1,)) and last.repeated == ((), (), (0,), (0,))
    assert not partition.equal and not held(partition)["every sample once"]
    assert words(partition)["every sample once"].startswith("0 and 1 are taken again")
    again = partition.table.filter("repeated")
    assert again["sample"].to_list() == [0, 1] and again["rank"].to_list() == [2, 3]


def test_padded_averages_count_samples_twice() -> None:
    losses = np.arange(10.0) ** 2
    averages = wb.partition(10, 4, 4).averages(losses)
    assert averages.true == pytest.approx(losses.mean())
    assert averages.counted == pytest.approx((losses.sum() + 0 + 1) / 12) != averages.true


def test_dividing_the_sum_by_the_ranks_is_wrong_for_uneven_parts() -> None:
    values = np.random.default_rng(0).standard_normal(10)
    partition = wb.partition(10, batch_size=10, ranks=4, sampler="workbench")
    assert [len(ids) for ids in partition.minibatches[0].of] == [3, 3, 2, 2]
    averages = partition.averages(values)
    assert averages.of_means == pytest.approx(0.195, abs=5e-4)
    assert averages.true == averages.counted == pytest.approx(0.0847, abs=5e-5)
    assert not held(partition)["parts of one size"] and partition.equal
    for what in ("0.195", "0.0847"):
        assert what in str(averages)


def test_drop_last_leaves_samples_out() -> None:
    partition = wb.partition(10, batch_size=4, ranks=4, drop_last=True)
    assert [one.of for one in partition.minibatches] == [
        ((0,), (1,), (2,), (3,)),
        ((4,), (5,), (6,), (7,)),
    ]
    assert partition.equal, "one process's BatchSampler leaves out the same two"
    assert words(partition)["every sample once"] == "2 samples of 10 are left out of an epoch"
    both = wb.partition(10, batch_size=4, ranks=4, drop_last=True, drop_last_batch=False)
    assert not both.equal and both.minibatches[2].sequential == (8, 9)
    # One drops what is left of an epoch; the other repeats, and then drops whole minibatches.
    padded = wb.partition(10, batch_size=8, ranks=4, drop_last_batch=True)
    assert len(padded.minibatches) == 1 and not padded.minibatches[0].repeated[0]


def test_a_minibatch_that_does_not_divide() -> None:
    partition = wb.partition(30, batch_size=10, ranks=4)
    assert partition.minibatches[0].of == ((0, 4), (1, 5), (2, 6), (3, 7)) and not partition.equal
    assert "10 does not divide by 4, so each rank takes 2" in words(partition)["same minibatches"]
    assert partition.minibatches[0].of == wb.partition(30, batch_size=8, ranks=4).minibatches[0].of
    assert wb.partition(30, batch_size=10, ranks=4, sampler="workbench").equal


def test_without_set_epoch_epochs_are_alike() -> None:
    name = "each epoch another order"
    assert held(wb.partition(24, 8, 2, shuffle=True, epochs=3))[name]
    forgotten = wb.partition(24, 8, 2, shuffle=True, epochs=3, set_epoch=False)
    assert not held(forgotten)[name] and forgotten.equal
    assert forgotten.minibatches[0].of == forgotten.minibatches[3].of


# ---- laws


@given(sizes, sizes, st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 99))
def test_it_is_what_torchs_samplers_yield(
    samples: int, batch: int, ranks: int, shuffle: bool, drop_last: bool, seed: int
) -> None:
    if drop_last and samples < ranks:
        drop_last = False
    partition = wb.partition(
        samples, batch, ranks, shuffle=shuffle, drop_last=drop_last, seed=seed, epochs=2
    )
    data: Any = TensorDataset(torch.arange(samples))
    for rank in range(ranks):
        sampler = DistributedSampler(
            data, num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        loader = DataLoader(
            data, batch_size=max(1, batch // ranks), sampler=sampler, drop_last=drop_last
        )
        for epoch in range(2):
            sampler.set_epoch(epoch)
            loaded = [tuple(ids.tolist()) for (ids,) in loader]
            mine = [one.of[rank] for one in partition.minibatches if one.epoch == epoch]
            assert [ids for ids in mine if ids] == loaded


@given(sizes, st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_where_all_divides_the_ranks_take_what_one_process_takes(
    minibatches: int, each: int, ranks: int, shuffle: bool
) -> None:
    partition = wb.partition(
        minibatches * each * ranks, each * ranks, ranks, shuffle=shuffle, epochs=2
    )
    of_any_epoch = {name: holds for name, holds in held(partition).items() if "epoch" not in name}
    assert partition.equal and len(of_any_epoch) == 3 + (ranks > 1) and all(of_any_epoch.values())
    if not shuffle:
        assert partition.words.endswith("what one process takes, each sample once.")


@given(sizes, sizes, st.integers(1, 9), st.integers(0, 99))
def test_the_workbenchs_own_are_one_processs_always(
    samples: int, batch: int, ranks: int, seed: int
) -> None:
    of_workbench = wb.partition(
        samples, batch, ranks, sampler="workbench", shuffle=True, seed=seed, epochs=2
    )
    assert of_workbench.equal and held(of_workbench)["every sample once"]
    whole = Minibatches(samples, batch, seed)
    for number, one in enumerate(of_workbench.minibatches):
        ids = whole.ids(number)
        assert one.sequential == tuple(ids)
        assert one.of == tuple(tuple(partition(ids, rank, ranks)) for rank in range(ranks))


@given(sizes, sizes, st.integers(1, 9), st.booleans(), st.integers(1, 2))
def test_repeated_are_those_beyond_the_first(
    samples: int, batch: int, ranks: int, shuffle: bool, epochs: int
) -> None:
    partition = wb.partition(samples, batch, ranks, shuffle=shuffle, epochs=epochs)
    for epoch in range(epochs):
        of_epoch = [one for one in partition.minibatches if one.epoch == epoch]
        counts = Counter(i for one in of_epoch for ids in one.of for i in ids)
        repeated = sum(len(at) for one in of_epoch for at in one.repeated)
        assert repeated == sum(times - 1 for times in counts.values()) == -samples % ranks
        assert set(counts) == set(range(samples)), "padding leaves none out"
    assert partition.table.filter(partition.table["rank"] >= 0)["repeated"].sum() == epochs * (
        -samples % ranks
    )


# ---- a user's own


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> int:
        return i


def test_loaders_of_ones_own() -> None:
    def loader(rank: int) -> Any:
        data = Numbers()
        sampler: Any = DistributedSampler(data, num_replicas=3, rank=rank, shuffle=True, seed=5)
        return DataLoader(data, batch_size=2, sampler=sampler)

    partition = wb.partition(
        samplers=[loader(rank) for rank in range(3)],
        shuffle=True,
        seed=5,
        epochs=2,
        set_epoch=True,
    )
    assert (
        partition.minibatches == wb.partition(12, 6, 3, shuffle=True, seed=5, epochs=2).minibatches
    )
    assert (
        partition.equal
        and partition.ranks == 3
        and partition.samples == 12
        and partition.sampler == "own"
    )
    name = "each epoch another order"
    forgotten = wb.partition(samplers=[loader(rank) for rank in range(3)], shuffle=True, epochs=2)
    assert held(partition)[name] and not held(forgotten)[name]
    assert "set_epoch(epoch) before each epoch" in words(forgotten)[name]


def test_samplers_and_lists_of_ones_own() -> None:
    data: Any = Numbers()
    samplers = [DistributedSampler(data, num_replicas=2, rank=r, shuffle=False) for r in range(2)]
    assert wb.partition(samplers=samplers, batch_size=4).equal
    batches = [BatchSampler(sampler, 2, drop_last=False) for sampler in samplers]
    assert wb.partition(samplers=batches).minibatches == wb.partition(12, 4, 2).minibatches
    same_shard = [BatchSampler(SequentialSampler(data), 2, drop_last=False) for _ in range(2)]
    wrong = wb.partition(samplers=same_shard, samples=12)
    assert not wrong.equal and wrong.minibatches[0].repeated == ((), (0, 1))
    uneven = wb.partition(samplers=[[[0, 1], [2, 3]], [[4, 5]]])
    assert not held(uneven)["as many minibatches on every rank"]
    beside = wb.partition(samplers=[[[0], [2]], [[1], [3]]], sequential=[[0, 1], [2, 3]])
    assert beside.equal and beside.samples == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"samples": 0}, "samples = 0: must be a whole number, 1 or more"),
        ({"batch_size": 2.5}, "batch_size = 2.5"),
        ({"ranks": True}, "ranks = True"),
        ({"samples": [1, 1]}, "each once"),
        ({"samples": 999_999, "epochs": 2}, "at most 1,000,000"),
        ({"sampler": "mine"}, "'distributed' or 'workbench'"),
        ({"sampler": "workbench", "drop_last": True}, "leaves no sample out"),
        ({"sequential": [[0]]}, "samplers=[...]"),
        ({"samplers": []}, "one for each rank"),
        ({"samplers": [["a"]]}, "yields 'a'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(wb.SpecError) as refused:
        wb.partition(**options)
    assert reason in str(refused.value)


def test_what_is_printed_names_all() -> None:
    text = str(wb.partition(10, 4, 4))
    assert (
        "minibatch 2: 8 9\n    rank 0: 8\n    rank 1: 9\n    rank 2: (0)\n    rank 3: (1)" in text
    )
    assert "does not hold: every sample once" in text


def test_a_sample_on_two_ranks_is_repeated_on_the_higher_one() -> None:
    (one,) = epoch_of(0, [[0, 1]], [[[0, 1]], [[1, 0]]])
    assert one.repeated == ((), (0, 1)) or one.repeated == ((1,), (1,))
    assert sum(map(len, one.repeated)) == 2
