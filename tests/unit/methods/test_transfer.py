"""Site terms tied pair by pair, where they must be fits that everybody knows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle.causal_rff import DESIGN, design_of, fitted, make_tables, stack, sums_of
from unpooled.errors import StudyError
from unpooled.methods.causal_rff.observed.candidate import make_terms
from unpooled.methods.causal_rff.observed.modes import SiteTerms, between_sites, draw, find_mode, mean
from unpooled.methods.causal_rff.observed.regression import SPREAD, outline
from unpooled.methods.causal_rff.observed.transfer import Covariance, Transfer, make_paired
from unpooled.methods.causal_rff.settings import CausalRFFSettings

SIZES = (31, 44, 38)
TABLES = make_tables(2, SIZES)
SITES, ALL = len(SIZES), DESIGN.width
LOGS = np.log([1.0, 0.4, 0.2, 0.5, 0.3, *[1e-12] * 6, 0.3, 0.2])
OUTLINE = outline(DESIGN, ALL, differ=False, family="continuous")
PRIOR = np.exp(LOGS)[np.array(OUTLINE.common)]
NOISE = np.exp(LOGS)[-2:]


@pytest.fixture(scope="module")
def sums():
    return sums_of(TABLES, ALL)


def _terms(**settings) -> SiteTerms:
    return make_terms(CausalRFFSettings(**settings), DESIGN, sites=SITES, family="continuous")


def _whole(found: dict) -> np.ndarray:
    return np.reshape(found["site"], (SITES, -1)) + np.ravel(found["common"])


def test_no_transfer_is_separate_fits(sums) -> None:
    found = _terms(site_terms="transfer", transfer=0.0).coefficients(jnp.asarray(LOGS), sums, None)
    expected = [fitted(table, PRIOR, NOISE) for table in TABLES]
    np.testing.assert_allclose(_whole(found), expected, rtol=1e-9, atol=1e-10)


def test_full_transfer_is_the_pooled_fit_of_as_many_times_the_variance(sums) -> None:
    """θ_s = Σ_v θ^v, of variance m·v, the same at every site however unlike the sites are."""
    found = _terms(site_terms="transfer", transfer=1.0).coefficients(jnp.asarray(LOGS), sums, None)
    pooled = fitted(stack(TABLES), SITES * PRIOR, NOISE)
    np.testing.assert_allclose(_whole(found), np.tile(pooled, (SITES, 1)), rtol=1e-8, atol=1e-9)


def test_the_evidence_is_that_of_the_outcomes(sums) -> None:
    """Without transfer it is the sum of what the sites' outcomes say one by one, each as a dense Gaussian."""
    told_of = 0.0
    for table in TABLES:
        rows = design_of(table)
        seen = rows * PRIOR @ rows.T + np.diag(NOISE[table[1]])
        told_of -= 0.5 * (table[2] @ np.linalg.solve(seen, table[2]))
        told_of -= 0.5 * np.linalg.slogdet(2.0 * np.pi * seen)[1]
    apart = (LOGS - np.log(OUTLINE.expected)) / SPREAD
    found = _terms(site_terms="transfer", transfer=0.0).log_evidence(jnp.asarray(LOGS), sums)
    np.testing.assert_allclose(found, told_of - 0.5 * np.sum(apart**2), rtol=1e-10)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_papers_lambda_multiplies_the_other_sites_coefficients(symmetric: bool) -> None:
    between = Transfer(SITES, symmetric, None)
    free = np.linspace(-2.0, 2.0, between.size)
    found = np.asarray(between.shown(jnp.asarray(free)))
    assert between.size == (3 if symmetric else 6)
    assert np.all(np.diagonal(found) == 0.0)
    chance = np.sort(1.0 / (1.0 + np.exp(-free)))
    np.testing.assert_allclose(np.sort(found[found > 0.0]), np.repeat(chance, 2) if symmetric else chance)
    assert np.array_equal(found, found.T) == symmetric
    np.testing.assert_allclose(between.factor(jnp.asarray(free)), np.eye(SITES) + found)


def test_a_free_covariance_begins_with_sites_alike_to_one_degree_and_can_be_any() -> None:
    between = Covariance(SITES)
    np.testing.assert_allclose(between.shown(jnp.zeros(6)), np.where(np.eye(3), 1.0, 0.8), rtol=1e-12)
    aim = np.array([[1.0, -0.4, 0.2], [-0.4, 2.0, 0.9], [0.2, 0.9, 0.7]])
    values, vectors = np.linalg.eigh(aim)
    root = (vectors * np.sqrt(values)) @ vectors.T
    free = (root - np.asarray(between.factor(jnp.zeros(6))))[np.tril_indices(3)]
    np.testing.assert_allclose(between.shown(jnp.asarray(free)), aim, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_the_order_of_the_sites_does_not_matter() -> None:
    order = [2, 0, 1]
    turned = sums_of([TABLES[index] for index in order], ALL)
    terms = _terms(site_terms="covariance")
    first, second = (find_mode(terms, each, curvature=False) for each in (sums_of(TABLES, ALL), turned))
    np.testing.assert_allclose(first.evidence, second.evidence, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["covariance", "transfer"])
def test_what_is_learned_is_likelier_than_what_was_expected(kind: str, sums) -> None:
    terms = _terms(site_terms=kind)
    mode = find_mode(terms, sums, curvature=False)
    assert mode.evidence > float(terms.log_evidence(jnp.asarray(terms.expected), sums)) + 1.0
    at_rest = jax.grad(lambda point: terms.log_evidence(point, sums))(jnp.asarray(mode.point))
    assert np.all(np.abs(np.asarray(at_rest)[[*terms.variances, *terms.others]]) < 0.05)


@pytest.mark.slow
def test_sites_that_are_one_population_are_found_to_borrow_and_strangers_not_to() -> None:
    alike = make_tables(3, (60, 60, 60))
    shared = np.mean([table[2].mean() for table in alike])
    alike = [(x, w, y - y.mean() + shared) for x, w, y in alike]
    x, w, y = alike[2]
    strange = [*alike[:2], (x, w, np.roll(-2.0 * y, 7))]
    terms = _terms(site_terms="transfer")
    found = {}
    for name, tables in {"alike": alike, "strange": strange}.items():
        sums = sums_of(tables, ALL)
        found[name] = between_sites(terms, sums, find_mode(terms, sums, curvature=False))["borrowed"]
    np.testing.assert_allclose(found["alike"].sum(axis=1), 1.0)
    assert found["alike"][2, :2].sum() > 2.0 * found["strange"][2, :2].sum()


@pytest.mark.slow
def test_draws_have_the_regressions_format_and_lie_about_the_mean(sums) -> None:
    terms = _terms(site_terms="transfer", transfer=0.5)
    mode = find_mode(terms, sums)
    drawn = draw(terms, sums, mode, 300, np.random.default_rng(1))
    shapes = {name: part.shape for name, part in drawn.items()}
    assert shapes == {"common": (300, 2, ALL), "site": (300, SITES, 2, ALL), "noise": (300, 2)}
    assert np.all(drawn["common"] == 0.0)
    error = drawn["site"].std(axis=0) / np.sqrt(300)
    # The mean over variances is not quite the mean at the likeliest ones.
    assert np.mean(np.abs(drawn["site"].mean(axis=0) - mean(terms, sums, mode)["site"]) < 4.0 * error) > 0.9


def test_a_system_that_is_too_large_is_refused_with_a_remedy() -> None:
    with pytest.raises(StudyError, match="200 sites with 20 coefficients each"):
        make_paired(OUTLINE, Transfer(200, False, None))
