"""The regression that sites share in part, where it must be one that everybody knows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from oracle.causal_rff import DESIGN, design_of, fitted, make_tables, stack, sums_of
from unpooled.maths import partial_pooling as pooling
from unpooled.methods.causal_rff.observed.modes import find_mode
from unpooled.methods.causal_rff.observed.regression import Outline, PartlyShared, assemble, outline, prior_of

TABLES = make_tables(2)
ALL = DESIGN.width
VARIANCES = np.array([1.0, 0.4, 0.2, 0.5, 0.3, 0.05, 0.02, 0.08, 0.03, 0.06, 0.01, 0.3, 0.2])
"""Shared and effect: fixed, linear, Fourier; the same for a site; noise by arm."""
NOISE = VARIANCES[-2:]


def _coefficients(tables: list, shape: Outline, width: int, variances: np.ndarray) -> np.ndarray:
    """Every site's whole coefficients [m, 2f]."""
    prior = prior_of(shape, jnp.asarray(variances))
    found = pooling.coefficients(
        pooling.posterior(assemble(sums_of(tables, width), variances[-2:]), prior), prior
    )
    whole = np.array([np.reshape(found.common, (2, ALL))] * len(tables))
    whole[:, :, :width] += np.reshape(found.site, (len(tables), 2, width))
    return whole.reshape(len(tables), -1)


def _of_a_site(shape: Outline, width: int, variances: np.ndarray) -> np.ndarray:
    """Prior variances of θ + B b_s."""
    prior = variances[np.array(shape.common)].reshape(2, ALL)
    prior[:, :width] += variances[np.array(shape.site)].reshape(2, width)
    return prior.reshape(-1)


@pytest.mark.parametrize("width", [1, ALL], ids=["offsets", "deviations"])
def test_one_site_is_a_plain_bayesian_regression(width: int) -> None:
    shape = outline(DESIGN, width, differ=True, family="continuous")
    found = _coefficients(TABLES[:1], shape, width, VARIANCES)
    expected = fitted(TABLES[0], _of_a_site(shape, width, VARIANCES), NOISE)
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-10)


def test_without_site_terms_many_sites_are_the_pooled_fit() -> None:
    shape = outline(DESIGN, 1, differ=False, family="continuous")
    apart, together = (
        find_mode(PartlyShared(shape), sums_of(tables, 1)) for tables in (TABLES, [stack(TABLES)])
    )
    np.testing.assert_allclose(apart.point, together.point, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(apart.evidence, together.evidence, rtol=1e-8)
    variances = np.exp(together.point)
    pooled = fitted(stack(TABLES), variances[np.array(shape.common)], variances[-2:])
    found = _coefficients(TABLES, shape, 1, variances)
    np.testing.assert_allclose(found, np.tile(pooled, (len(TABLES), 1)), rtol=1e-8, atol=1e-8)


def test_deviations_without_bounds_are_separate_fits() -> None:
    shape, variances = outline(DESIGN, ALL, differ=True, family="continuous"), VARIANCES.copy()
    variances[5:11] = 1e7
    found = _coefficients(TABLES, shape, ALL, variances)
    for mine, table in zip(found, TABLES, strict=True):
        rows, weight = design_of(table), 1.0 / np.sqrt(NOISE[table[1]])
        alone = np.linalg.lstsq(rows * weight[:, None], table[2] * weight)[0]
        np.testing.assert_allclose(rows @ mine, rows @ alone, atol=1e-5)
