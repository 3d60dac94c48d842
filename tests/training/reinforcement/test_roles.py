"""Several ranks of each role: what is conserved, what is bounded, which may end."""

from __future__ import annotations

from dataclasses import asdict

import polars as pl
import pytest

import workbench as wb
from tests.pairwise import first
from tests.training.reinforcement.played import (
    TRANSITION,
    counts,
    done,
    game,
    lawful,
    metric,
    roles,
    sent,
)
from workbench.presets import reinforcement
from workbench.strategies import ape_x, gorila
from workbench.training.reinforcement.bytes_by_kind import expected

NETWORK = 25_939  # parameters of the small convolution


def conserved(run: wb.Run) -> None:
    """Check that all that actors sent was inserted or dropped, and none sampled before it came."""
    events, played_roles, kept = run.events, roles(run), counts(run)
    block = 4
    for actor in played_roles["actors"]:
        out = sent(events, "experience", [actor])
        assert (out["nbytes"] == block * TRANSITION).all()
        came = sum(one["came"].get(str(actor), 0) for one in kept.values())
        assert came == block * out.height > 0
    for replay, one in kept.items():
        came, dropped = sum(one["came"].values()), sum(one["dropped"].values())
        assert one["inserted"] == came - dropped
        marks = metric(events, "inserted").filter(pl.col("rank") == replay)
        assert marks["value"].sum() == one["inserted"]


def test_ape_x_sends_no_gradient_and_conserves_experience() -> None:
    run, result = done(game("ape_x", 6, replays=2, pull_every=20, iterations=50))
    events = lawful(run)
    played_roles = {name: roles(run)[name] for name in ("servers", "learners", "replays", "actors")}
    assert played_roles == {"servers": [], "learners": [0], "replays": [1, 2], "actors": [3, 4, 5]}
    conserved(run)
    assert sent(events, "gradients").is_empty() and len(result.losses) == 50
    assert (sent(events, "parameters")["nbytes"] == 4 * NETWORK).all()
    assert sent(events, "priorities").height == 50
    minibatches = sent(events, "minibatch")
    assert (minibatches["nbytes"] == 16 * (TRANSITION + 16)).all()
    assert minibatches["rank"].unique().sort().to_list() == [1, 2]
    ladder = metric(events, "epsilon").group_by("rank").agg(pl.col("value").unique()).sort("rank")
    assert [one for (one,) in ladder["value"]] == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_gorila_applies_or_discards_each_gradient_and_conserves_experience() -> None:
    exp = game(
        "gorila", 7, servers=2, learners=2, iterations=40, pull_every=20, stale_above=0, seed=2
    )
    run, result = done(exp)
    events = lawful(run)
    conserved(run)
    played_roles = roles(run)
    for server in played_roles["servers"]:
        pushed = events.filter(kind="push", peer=server).height
        applied = events.filter(kind="apply", rank=server).height
        dropped = metric(events, "dropped").filter(pl.col("rank") == server).height
        assert pushed == applied + dropped == 80 and applied >= 40
    gradients = sent(events, "gradients").filter(pl.col("peer") < 2)
    each = gradients.group_by("rank").agg(pl.col("nbytes").sum())
    assert (each["nbytes"] == 40 * 4 * NETWORK).all() and each.height == 2
    assert len(result.losses) == 40


def test_bundles_send_no_experience() -> None:
    run, result = done(game("gorila", 3, bundle=True, iterations=30))
    events = lawful(run)
    assert sent(events, "experience").is_empty() and sent(events, "minibatch").is_empty()
    assert sent(events, "gradients").height == 60 and len(result.losses) == 30
    assert metric(events, "return")["rank"].n_unique() == 3, "two that play, one that is scored"


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "ranks"), first(1, [("gorila", 5), ("ape_x", 4)]))
def test_learners_wait_for_an_actor_that_lags(strategy: str, ranks: int) -> None:
    bound = {"max_policy_lag": 3, "when_lagging": "wait", "pull_every": 8}
    run, _ = done(game(strategy, ranks, iterations=30, pad_environment="2 ms", **bound))
    events = lawful(run)
    conserved(run)
    lag = metric(events, "policy lag")["value"]
    assert len(lag) and lag.max() <= 3 and metric(events, "dropped experience").is_empty()


@pytest.mark.full
def test_experience_of_a_policy_that_is_too_old_is_dropped() -> None:
    bound = {"max_policy_lag": 2, "when_lagging": "drop", "pull_every": 200}
    run, _ = done(game("ape_x", 4, iterations=60, pad_environment="1 ms", **bound))
    lawful(run)
    conserved(run)
    (one,) = counts(run).values()
    assert sum(one["dropped"].values()) > 0


@pytest.mark.parametrize(("strategy", "ranks"), first(1, [("ape_x", 4), ("gorila", 5)]))
def test_training_goes_on_without_an_actor_that_is_lost(strategy: str, ranks: int) -> None:
    lost = ranks - 1
    kill = wb.Kill(rank=lost, at_iteration=5)
    # The learner waits, so that on busy cores, too, the actor that is left plays to the end.
    bound = {"max_policy_lag": 8, "when_lagging": "wait", "pull_every": 8}
    run, result = done(game(strategy, ranks, iterations=40, faults=kill, **bound))
    assert result.ok and result.lost == [lost] and len(result.losses) == 40
    after = metric(run.events, "frames").filter(pl.col("iteration") > 10)
    assert after["rank"].unique().to_list() == [lost - 1]


# -- where the bytes go --


@pytest.mark.full
def test_the_bytes_of_each_kind_are_those_of_the_formula_and_ape_x_saves_most() -> None:
    """Parameters and gradients, for an update of a learner: at most a tenth of Gorila's."""
    fields = {"pull_every": 400, "pad_environment": "4 ms", "iterations": 60, "ask_ahead": 0}
    each = {}
    for strategy, ranks in (("ape_x", 4), ("gorila", 6)):
        more = {"learners": 2} if strategy == "gorila" else {}
        run, _ = done(game(strategy, ranks, **fields, **more))
        table = run.bytes_by_kind()
        rows = {
            kind: (nbytes, expected_bytes) for kind, _, nbytes, expected_bytes in table.iter_rows()
        }
        assert [*rows] == ["experience", "minibatch", "priorities", "parameters", "gradients"]
        pull = 4 * NETWORK  # an actor's last pull may be still to come
        for kind, (nbytes, expected_bytes) in rows.items():
            slack = 0.05 * expected_bytes + (2 * pull if kind == "parameters" else 16 * TRANSITION)
            assert abs(nbytes - expected_bytes) <= slack, kind
        updates = 60 * (2 if more else 1)
        each[strategy] = (rows["parameters"][0] + rows["gradients"][0]) / updates
    assert each["ape_x"] <= each["gorila"] / 10
    assert wb.run(game("sequential", iterations=1)).bytes_by_kind().is_empty()


def test_ape_x_saves_nine_tenths_of_gorilas_bytes_at_the_settings_of_the_presets() -> None:
    (experiments,) = (make() for name, _, make in reinforcement.comparisons() if "Ape-X" in name)
    frames = 20  # of all actors for an update, where nothing else keeps the learner from its core
    each = {}
    for name in ("Ape-X", "Gorila"):
        exp = experiments[name]
        config = {"ape_x": ape_x, "gorila": gorila}[exp.strategy].Config(**exp.options)
        facts = {"servers": [0] * (name == "Gorila"), "transition": 136, "parameters": 4 * NETWORK}
        expected_bytes = expected(
            facts, asdict(config), exp.batch_size, frames=frames * 1000, updates=1000
        )
        each[name] = expected_bytes["parameters"] + expected_bytes["gradients"]
    assert each["Ape-X"] <= each["Gorila"] / 10
    for exp in (make() for _, _, make in reinforcement.presets()):
        if exp.strategy in ("ape_x", "gorila"):
            assert exp.options.get("bundle") or exp.options["pull_every"] == 200


# -- faults --


@pytest.mark.parametrize(
    ("strategy", "ranks", "lost", "options"),
    first(
        1,
        [
            ("ape_x", 5, 2, {"replays": 2}),  # a shard of replay
            ("gorila", 6, 1, {"learners": 2}),  # a learner
        ],
    ),
)
def test_one_of_several_is_lost_and_what_went_with_it_is_recorded(
    strategy: str, ranks: int, lost: int, options: dict[str, int]
) -> None:
    kill = wb.Kill(rank=lost, at_iteration=8)
    exp = game(strategy, ranks, iterations=50, faults=kill, pull_every=8, **options)
    run, result = done(exp)
    assert result.ok and result.lost == [lost] and len(result.losses) == 50
    if "replays" in options:
        losses = metric(run.events, "lost experience").filter(pl.col("peer") == lost)
        assert set(losses["rank"]) == {3, 4} and (losses["value"] > 0).all()
        assert metric(run.events, "lost replay")["rank"].to_list() == [0]


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "ranks", "lost"), [("ape_x", 3, 1), ("gorila", 4, 0)])
def test_the_only_one_of_a_role_is_named_when_it_is_lost(
    strategy: str, ranks: int, lost: int
) -> None:
    run = wb.run(game(strategy, ranks, faults=wb.Kill(rank=lost, at_iteration=5)))
    with pytest.raises(wb.PeerLost, match=f"rank {lost}"):
        run.wait(120)
