"""What the stage of balance and overlap sends of a site: never a count of one to four."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.world import scaling_of
from unpooled.methods.diagnostics import rounds
from unpooled.methods.diagnostics.balance import BINS, CELL, Balance, _shown, regressors, with_regressors
from unpooled.protocol.messages import Ask, Statistics, Together
from unpooled.protocol.records import IncompleteColumn, Parameters
from unpooled.protocol.rows import make_rows

MEAN, SD = np.array([50.0, 0.3, 4.0, 0.6]), np.array([9.0, 0.4, 2.0, 0.5])
SCALING = scaling_of(
    mean=MEAN[:2], sd=SD[:2], incomplete_mean=MEAN[2:], incomplete_sd=SD[2:],
    binary_rate=np.array([np.nan, 0.3]), counts=(30, 30),
    incomplete_columns=(IncompleteColumn("u", "numeric", 1), IncompleteColumn("v", "binary", 1)),
)  # fmt: skip
"""A number and a flag; then a number and a flag that may be missing."""
STAGE = rounds.stages(SCALING)["diagnostics/balance"]
assert isinstance(STAGE, Balance)


def few(count: Any) -> np.ndarray:
    return (np.asarray(count) > 0) & (np.asarray(count) < CELL)


def test_regressors_are_values_then_those_with_holes_then_the_holes() -> None:
    found = regressors(SCALING, ("a", "f", "u", "v"))
    assert found.names == ("a", "f", "u", "v", "u missing", "v missing")
    assert found.flag.tolist() == [False, True, False, True, True, True]
    assert (found.width, found.balanced, found.incomplete) == (6, 4, 2)
    assert rounds.features(SCALING) == 7
    rows = make_rows(
        np.zeros((3, 2)), np.array([0.0, 1.0, 1.0]), np.zeros(3), fold=np.zeros(3), site=1,
        incomplete=np.array([[0.5, np.nan], [np.nan, np.nan], [1.5, -1.0]]),
    )  # fmt: skip
    seen = with_regressors(rows, np.array([2, 0, 1]))
    expected = [[0, 0, 0.5, 0, 0, 1], [0, 0, 0, 0, 1, 1], [0, 0, 1.5, -1.0, 0, 0]]
    np.testing.assert_array_equal(seen.covariates[:3], expected)
    np.testing.assert_array_equal(seen.covariates[3:], 0.0)
    np.testing.assert_array_equal(seen.fold, [2, 0, 1] + [-1] * 13)


# -------------------------------------------------------------------------------- disclosure

counts = st.lists(st.integers(0, 9) | st.just(0), min_size=BINS, max_size=BINS)


@given(counts, counts)
def test_of_an_arms_bins_no_small_one_is_sent_and_none_is_kept_back_alone(
    control: list[int], treated: list[int]
) -> None:
    people = np.array([control, treated], dtype=float)
    shown = np.asarray(_shown(jnp.asarray(people)))
    assert not np.any(shown & few(people))
    for arm in (0, 1):
        gone = ~shown[arm]
        assert gone.sum() != 1
        left = people[arm][gone].sum()
        assert not few(left) or few(people[arm].sum())  # else the arm itself is kept back
        if not np.any(few(people[arm])):
            assert not gone.any()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_a_single_small_bin_hides_the_next_smallest(rest: list[int]) -> None:
    people = np.zeros((2, BINS))
    people[0, 3], people[0, 8 : 8 + len(rest)] = 2.0, [5.0 + one for one in rest]
    shown = np.asarray(_shown(jnp.asarray(people)))
    assert np.flatnonzero(~shown[0]).tolist() == [3, 8 + int(np.argmin(rest))]
    assert shown[1].all()


def sent(seed: int, people: int, share: float, rarity: float, gaps: float) -> tuple[Statistics, Any]:
    """What the stage says of a site made by chance, and the site's rows."""
    rng = np.random.default_rng(seed)
    w = (rng.random(people) < share).astype(float)
    values = np.column_stack(
        [
            rng.normal(50, 9, people),
            rng.random(people) < rarity,
            rng.normal(4, 2, people),
            rng.random(people) < 0.4,
        ]
    ).astype(float)
    values[:, 2:][rng.random((people, 2)) < gaps] = np.nan
    standard = (values - MEAN) / SD
    rows = make_rows(
        standard[:, :2], w, rng.normal(size=people), fold=np.zeros(people), site=0, incomplete=standard[:, 2:]
    )
    own = with_regressors(rows, rng.integers(0, 3, people))
    coefficients = np.tile(rng.normal(0.0, 0.6, 7), (3, 1))
    said = STAGE.statistics(Parameters(per_site={"treatment": coefficients}), own)
    return said, (w, values)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.integers(0, 10_000), st.sampled_from([6, 12, 16]), st.sampled_from([0.2, 0.5]),
    st.sampled_from([0.05, 0.3, 0.5]), st.sampled_from([0.0, 0.1, 0.5]),
)  # fmt: skip
def test_no_count_of_one_to_four_is_sent_of_a_site(
    seed: int, people: int, share: float, rarity: float, gaps: float
) -> None:
    said, (w, values) = sent(seed, people, share, rarity, gaps)
    each = {name: np.asarray(found) for name, found in said.per_site.items()}
    kept = each["kept"] > 0.0
    mean, sd = (np.asarray(part) for part in (STAGE.mean, STAGE.sd))
    ones = np.round(each["people"] * mean + each["sum"] * sd)[:, np.asarray(STAGE.flag)]
    zeros = each["people"][:, np.asarray(STAGE.flag)] - ones
    missing = np.where(kept, each["arms"][:, None] - each["people"], 0.0)
    for counted in (each["arms"], each["people"], each["histogram"], ones, zeros, missing):
        assert not few(np.round(counted)).any()
    arms = np.array([np.sum(w == 0), np.sum(w == 1)])
    assert np.all((each["arms"] == arms) | few(arms))
    for name in ("weights", "weight_squares"):
        assert np.all((each[name] > 0.0) == (each["arms"] > 0.0))
    for name in ("people", "sum", "square"):
        assert not each[name][:, ~kept].any()
    assert np.all((~(each["shown"] > 0.0)).sum(axis=1) != 1)
    # Sums over sites have everybody.
    known = np.column_stack([values, np.isnan(values[:, 2:])])
    for arm in (0, 1):
        np.testing.assert_array_equal(said.summed["people"][arm], np.sum(~np.isnan(known[w == arm]), axis=0))
        totals = np.nansum(known[w == arm], axis=0)
        found = said.summed["sum"][arm] * sd + said.summed["people"][arm] * mean
        np.testing.assert_allclose(found, totals, atol=1e-9)
    assert said.summed["histogram"].sum() == people


def test_a_feature_is_kept_back_for_few_of_a_kind_few_values_or_few_gaps() -> None:
    people = jnp.array([30.0, 30.0])
    plain = Balance(jnp.zeros(5), jnp.ones(5), jnp.array([True, True, True, False, False]), trim=0.01)
    sums = {
        "people": jnp.array([[30.0, 30.0, 30.0, 28.0, 4.0], [30.0, 30.0, 30.0, 30.0, 30.0]]),
        "sum": jnp.array([[10.0, 3.0, 10.0, 2.0, 2.0], [0.0, 10.0, 26.0, 2.0, 2.0]]),
    }
    assert plain._kept(sums, people).tolist() == [True, False, False, False, False]


# ----------------------------------------------------------------------------- the procedure


def test_stages_are_asked_by_names_of_their_own() -> None:
    assert all(name.startswith(rounds.PREFIX) for name in rounds.stages(SCALING))
    asked: list[str] = []

    def names(question: Any) -> None:
        for part in question.questions if isinstance(question, Together) else (question,):
            assert isinstance(part, Ask)
            asked.append(part.stage)

    procedure = rounds.diagnose(SCALING)
    names(next(procedure))
    assert sorted(asked) == ["diagnostics/outcome", "diagnostics/treatment"]
    procedure.close()


def test_a_regression_without_a_solution_ends_the_diagnostics_and_no_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def singular(*_: Any) -> Any:
        yield Ask("outcome", Parameters())
        np.linalg.solve(np.zeros((2, 2)), np.zeros(2))

    monkeypatch.setattr(rounds, "nuisances", singular)
    procedure = rounds.diagnose(SCALING)
    next(procedure)
    with pytest.raises(StopIteration) as done:
        procedure.send(Statistics())
    assert isinstance(done.value.value, rounds.Unavailable)
    assert "singular" in done.value.value.reason


@pytest.mark.parametrize("name", list(rounds.stages(SCALING)))
def test_every_stage_says_what_it_reveals(name: str) -> None:
    assert len(rounds.stages(SCALING)[name].reveals) > 20
