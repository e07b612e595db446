"""Little's test from sums by pattern, against the test row by row over the raw table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from oracle.little import d_square, expectation_maximisation, log_likelihood
from unpooled.errors import DataError
from unpooled.maths.little import little, stratified, vote
from unpooled.maths.missing_patterns import Pattern, merged, moments, patterns_of, suppressed

# R's table `datasets::airquality`, from the package pydataset 0.2.0, without its column of row numbers.
AIRQUALITY = np.genfromtxt(
    Path(__file__).parents[2] / "data" / "airquality.csv", delimiter=",", skip_header=1, missing_values="NA"
)
ROOT = np.linalg.cholesky(0.5 * np.eye(4) + 0.5)


def _complete(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.normal(size=(rows, 4)) @ ROOT.T


def _table(seed: int = 1, rows: int = 120, share: float = 0.25) -> np.ndarray:
    """Some rows lose everything."""
    rng = np.random.default_rng(seed)
    values = _complete(rng, rows)
    return np.where(rng.random(values.shape) < share, np.nan, values)


def _of(table: np.ndarray) -> tuple[Pattern, ...]:
    return patterns_of(table, np.zeros(table.shape[1]))


TABLE = _table()


def test_patterns_hold_counts_sums_and_cross_products_about_the_centre() -> None:
    centre = np.array([0.5, -1.0, 0.0, 2.0])
    found = patterns_of(TABLE, centre)
    observed = ~np.isnan(TABLE)
    assert sum(pattern.count for pattern in found) == observed.any(axis=1).sum() < len(TABLE)
    assert len(found) == len({tuple(row) for row in observed if row.any()})
    for pattern in found:
        rows = (TABLE - centre)[(observed == pattern.observed).all(axis=1)][:, pattern.observed]
        assert pattern.count == len(rows)
        np.testing.assert_allclose(pattern.sum, sum(rows), atol=1e-12)
        np.testing.assert_allclose(pattern.cross, sum(np.outer(row, row) for row in rows), atol=1e-12)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_moments_and_statistic_are_those_of_the_rows(seed: int) -> None:
    table = _table(seed)
    centre = np.nanmean(table, axis=0) + 0.3
    patterns = patterns_of(table, centre)
    mu, sigma = expectation_maximisation(table)
    fit, test = moments(patterns), little(patterns)
    assert fit.converged
    assert test.converged
    np.testing.assert_allclose(centre + fit.mean, mu, rtol=0, atol=1e-10)
    np.testing.assert_allclose(fit.covariance, sigma, rtol=0, atol=1e-10)
    np.testing.assert_allclose(fit.log_likelihood, log_likelihood(table, mu, sigma), rtol=1e-12)
    statistic, degrees = d_square(table, mu, sigma)
    np.testing.assert_allclose(test.statistic, statistic, rtol=1e-10)
    assert test.degrees == degrees
    assert test.p_value == pytest.approx(chi2.sf(statistic, degrees), rel=1e-8)
    assert (test.patterns, test.rows) == (len(patterns), (~np.isnan(table)).any(axis=1).sum())


def test_sites_find_what_the_pooled_rows_say() -> None:
    site = np.random.default_rng(5).integers(4, size=len(TABLE))
    apart = [_of(TABLE[site == s]) for s in range(4)]
    together = merged(apart)
    pooled = _of(TABLE)
    assert [pattern.observed.tolist() for pattern in together] == [p.observed.tolist() for p in pooled]
    for one, other in zip(moments(together)[:3], moments(pooled)[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(little(together), little(pooled), rtol=1e-10)
    unmerged = [pattern for patterns in reversed(apart) for pattern in patterns]
    np.testing.assert_allclose(little(unmerged), little(pooled), rtol=1e-10)


def test_neither_offset_nor_units_matter() -> None:
    far = TABLE * np.array([1.0, 1e-4, 1e5, 3.0]) + 1e7 * np.array([1.0, 0.0, 1.0, -1.0])
    found = little(patterns_of(far, np.round(np.nanmean(far, axis=0))))
    np.testing.assert_allclose(found, little(_of(TABLE)), rtol=1e-6)


def test_airquality_gives_the_published_value() -> None:
    np.testing.assert_array_equal(np.isnan(AIRQUALITY).sum(axis=0), [37, 7, 0, 0, 0, 0])
    found = little(patterns_of(AIRQUALITY, np.nanmean(AIRQUALITY, axis=0)))
    assert (round(found.statistic, 4), found.degrees) == (35.1062, 14)
    assert (found.patterns, found.rows) == (4, 153)
    assert found.p_value == pytest.approx(0.00142, abs=5e-6)


def test_naniar_gives_what_em_has_reached_after_eight_steps() -> None:
    early = expectation_maximisation(AIRQUALITY, steps=8)
    # The value in naniar's own tests; R's package norm stops when nothing moves by 1e-4.
    assert d_square(AIRQUALITY, *early)[0] == pytest.approx(35.1061288689702, rel=1e-12)


def test_the_likelihood_never_falls_and_few_steps_say_so() -> None:
    # So much is missing that extrapolations overshoot.
    patterns = _of(_table(20, rows=100, share=0.55))
    path = [moments(patterns, steps=steps) for steps in range(3, 190, 6)]
    heights = [fit.log_likelihood for fit in path]
    assert np.all(np.diff(heights) >= -1e-10)
    assert heights[-1] > heights[0] + 1.0
    assert (path[0].converged, path[0].iterations) == (False, 3)
    assert path[-1].converged


def test_patterns_without_a_value_or_a_row_count_for_nothing() -> None:
    nothing = Pattern(np.zeros(4, bool), 7, np.zeros(0), np.zeros((0, 0)))
    nobody = Pattern(np.array([True, False, False, True]), 0, np.zeros(2), np.zeros((2, 2)))
    few = [pattern for pattern in _of(TABLE) if pattern.observed.sum() != 2]
    assert little([nothing, *few, nobody]) == little(few)


def test_one_pattern_has_nothing_to_compare() -> None:
    rows = _complete(np.random.default_rng(2), 30)
    rows[:, 3] += 2.0
    fit, test = moments(_of(rows)), little(_of(rows))
    np.testing.assert_allclose(fit.mean, rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(fit.covariance, np.cov(rows.T, ddof=0), atol=1e-12)
    assert (test.degrees, test.patterns, test.rows) == (0, 1, 30)
    assert test.statistic == pytest.approx(0.0, abs=1e-20)
    assert np.isnan(test.p_value)


def test_a_constant_column_counts_for_nothing() -> None:
    constant = np.full((len(TABLE), 1), 0.1)
    wider = _of(np.hstack([constant, TABLE]))
    without = little(_of(TABLE))
    np.testing.assert_allclose(little(wider), without, rtol=1e-10)
    fit = moments(wider)
    assert fit.mean[0] == pytest.approx(0.1)
    assert not fit.covariance[0].any()
    assert not fit.covariance[:, 0].any()


def test_who_lacks_a_constant_column_is_still_compared() -> None:
    rows = _complete(np.random.default_rng(4), 200)
    flag = np.where(rows[:, 0] > 0.5, np.nan, 1.0)
    found = little(_of(np.column_stack([rows, flag])))
    assert (found.degrees, found.patterns) == (4, 2)
    assert found.p_value < 1e-6


def test_a_table_of_constants_gives_a_clear_result() -> None:
    found = little(_of(np.array([[1.0, 2.0], [1.0, np.nan], [np.nan, 2.0]])))
    assert (found.statistic, found.degrees, found.converged) == (0.0, 0, True)
    assert np.isnan(found.p_value)


def test_a_column_never_observed_is_named() -> None:
    table = TABLE.copy()
    table[:, 2] = np.nan
    with pytest.raises(DataError, match="never observed: column 3"):
        little(_of(table))
    with pytest.raises(DataError, match="no row with an observed value"):
        little(_of(np.full((3, 2), np.nan)))


def test_pairs_never_observed_together_do_not_enter() -> None:
    table = _complete(np.random.default_rng(6), 150)
    table[:70, 2], table[70:, 3] = np.nan, np.nan
    fit, test = moments(_of(table)), little(_of(table))
    assert fit.converged
    mu, sigma = expectation_maximisation(table)
    np.testing.assert_allclose(test.statistic, d_square(table, mu, sigma)[0], rtol=1e-9)
    other = fit.covariance.copy()
    other[2, 3] = other[3, 2] = 0.9 * other[2, 3]
    assert log_likelihood(table, fit.mean, other) == pytest.approx(fit.log_likelihood, rel=1e-12)
    assert d_square(table, fit.mean, other) == pytest.approx((test.statistic, test.degrees), rel=1e-9)


@pytest.mark.parametrize("case", ["one column repeats another", "fewer rows than columns", "two rows of one"])
def test_a_covariance_that_cannot_be_estimated_is_refused(case: str) -> None:
    table = _complete(np.random.default_rng(7), 40)
    if case == "one column repeats another":
        table[:, 3] = 2.0 * table[:, 0] + 1.0
        table[:9, 1] = np.nan
    elif case == "fewer rows than columns":
        table = table[:4]
    else:
        table[2:, 3] = np.nan
    with pytest.raises(DataError, match="must be estimable"):
        little(_of(table))


def test_nearly_repeated_columns_still_converge() -> None:
    table = _table(9, rows=300)
    table[:, 1] = np.where(np.isnan(table[:, 1]), np.nan, table[:, 0] + 1e-3 * table[:, 1])
    assert little(_of(table)).converged


def _sites(count: int = 3) -> dict[str, tuple[Pattern, ...]]:
    return {f"site {s}": _of(_table(20 + s, rows=60, share=0.15) + s) for s in range(count)}


def test_stratified_adds_what_sites_find_alone_and_names_the_others() -> None:
    sites = _sites()
    lacking = _table(31)
    lacking[:, 1] = np.nan
    full = _of(_complete(np.random.default_rng(3), 50))
    found = stratified({**sites, "lacking": _of(lacking), "few": _of(_table(32, rows=4)), "full": full})
    alone = [little(patterns) for patterns in sites.values()]
    assert found.statistic == pytest.approx(sum(test.statistic for test in alone))
    assert found.degrees == sum(test.degrees for test in alone)
    assert found.p_value == pytest.approx(chi2.sf(found.statistic, found.degrees))
    assert list(found.sites) == [*sites, "full"]
    assert list(found.left_out) == ["lacking", "few"]
    assert found.left_out["lacking"] == "never observed: column 2"


def test_stratified_without_a_site_that_can_test_has_no_verdict() -> None:
    found = stratified({"few": _of(_table(32, rows=4))})
    assert (found.statistic, found.degrees, list(found.left_out)) == (0.0, 0, ["few"])
    assert np.isnan(found.p_value)


def test_a_vote_is_the_share_of_sites_that_reject() -> None:
    sites = _sites(5)
    sites["full"] = _of(_complete(np.random.default_rng(3), 50))
    p_values = sorted(little(patterns).p_value for patterns in list(sites.values())[:5])
    for rejecting, verdict in ((2, False), (3, True)):
        found = vote(sites, 0.5 * (p_values[rejecting - 1] + p_values[rejecting]))
        assert (found.share, found.rejected) == (rejecting / 5, verdict)
        assert sorted(found.p_values.values()) == p_values
        assert list(found.left_out) == ["full"]
    nobody = vote({"full": sites["full"]}, 0.05)
    assert np.isnan(nobody.share)
    assert not nobody.rejected


def test_rare_patterns_are_dropped_and_counted() -> None:
    patterns = _of(TABLE)
    kept, dropped, rows = suppressed(patterns, 8)
    rare = [pattern for pattern in patterns if pattern.count < 8]
    assert 0 < dropped == len(rare) < len(patterns)
    assert rows == sum(pattern.count for pattern in rare)
    assert list(kept) == [pattern for pattern in patterns if pattern.count >= 8]
    assert little(kept).rows == little(patterns).rows - rows
    assert suppressed(patterns, 1) == (patterns, 0, 0)


def _some(count: int) -> Pattern:
    return Pattern(np.array([True]), count, np.zeros(1), np.zeros((1, 1)))


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 25))
def test_the_dropped_rows_together_are_none_or_as_many_as_a_pattern_needs(
    counts: list[int], least: int
) -> None:
    """Their sums are those of the whole table less those of the patterns that were sent."""
    patterns = [_some(count) for count in counts]
    kept, dropped, rows = suppressed(patterns, least)
    assert len(kept) + dropped == len(patterns)
    assert sum(pattern.count for pattern in kept) + rows == sum(counts)
    assert all(pattern.count >= least for pattern in kept)
    assert rows == 0 or rows >= least or not kept
    places = [next(place for place, one in enumerate(patterns) if one is pattern) for pattern in kept]
    assert places == sorted(places)  # in the order of the table
    left = [pattern.count for place, pattern in enumerate(patterns) if place not in places]
    assert not kept or max(left, default=0) <= min(pattern.count for pattern in kept)
    rare = [count for count in counts if count < least]
    if not rare or sum(rare) >= least:
        assert sorted(left) == sorted(rare)  # no more than necessary
    else:
        assert sum(sorted(left)[:-1]) < least


REPLICATES, SITES, ROWS, LEVEL = 200, 10, 40, 0.05
BY_CHANCE = binom.interval(0.999, REPLICATES, LEVEL)


def _rejections(
    seed: int,
    missing: Callable[[np.ndarray, int], np.ndarray | float],
    *,
    shift: float = 0.0,
    voting: bool = False,
) -> tuple[int, int]:
    """How often the pooled test rejects, and the stratified test or the vote; columns 3 and 4 lose values."""
    rng = np.random.default_rng(seed)
    pooled = other = 0
    for _ in range(REPLICATES):
        sites = {}
        for s in range(SITES):
            values = _complete(rng, ROWS)
            lost = rng.random((ROWS, 2)) < missing(values, s)
            values[:, 2:][lost] = np.nan
            sites[str(s)] = _of(values + shift * (s - 4.5))
        pooled += little(merged(sites.values())).p_value < LEVEL
        other += vote(sites, LEVEL).rejected if voting else stratified(sites).p_value < LEVEL
    return pooled, other


@pytest.mark.thorough
@pytest.mark.slow
def test_missing_completely_at_random_is_rejected_as_often_as_it_should() -> None:
    pooled, within = _rejections(40, lambda values, s: 0.15)
    assert BY_CHANCE[0] <= pooled <= BY_CHANCE[1]
    assert BY_CHANCE[0] <= within <= BY_CHANCE[1]


@pytest.mark.thorough
@pytest.mark.slow
def test_missing_at_random_is_seen_together_and_not_by_vote() -> None:
    pooled, majority = _rejections(
        41, lambda values, s: 1.0 / (1.0 + np.exp(1.6 - 0.7 * values[:, :1])), voting=True
    )
    assert pooled > 0.95 * REPLICATES
    assert majority < 0.2 * REPLICATES


@pytest.mark.thorough
@pytest.mark.slow
def test_sites_that_differ_mislead_the_pooled_test_only() -> None:
    pooled, within = _rejections(42, lambda values, s: 0.05 + 0.03 * s, shift=0.3)
    assert pooled > 0.8 * REPLICATES
    assert BY_CHANCE[0] <= within <= BY_CHANCE[1]
