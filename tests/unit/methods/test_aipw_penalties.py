"""Penalties chosen along Newton's steps are those of cross-validation, and take no θ of their own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from oracle.penalties import GRID, treatment_fits
from unpooled.methods.aipw import newton, penalties, regressions
from unpooled.methods.aipw.model import PooledRegressions
from unpooled.protocol.messages import Statistics


def people(seed: int, count: int, columns: int, strength: float, rate: float) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, columns))
    w = (rng.random(count) < expit(rate + strength * x @ rng.normal(size=columns))).astype(float)
    fold = np.zeros(count, int)
    for arm in (0.0, 1.0):
        fold[w == arm] = rng.permutation(int(np.sum(w == arm))) % 3
    return x, w, fold


def conduct(x: np.ndarray, w: np.ndarray, fold: np.ndarray) -> tuple[regressions.Propensity, int]:
    """The procedure of one site whose rows are these; and how many θ it asked for."""
    X, asked = np.column_stack([np.ones(len(x)), x]), 0
    rows, columns = np.tril_indices(X.shape[1])
    pooling = PooledRegressions(1, X.shape[1], offsets=False)
    procedure = regressions.propensity(pooling, regressions.held_out(3), None)
    question = next(procedure)
    while True:
        found: dict[str, list[np.ndarray]] = {"gram": [], "score": [], "likelihood": []}
        given = question.parameters  # type: ignore[attr-defined]
        for without, beta in zip(given.fixed["without"], given.per_site["treatment"][:, 0], strict=True):
            use, logit, asked = fold != without, X @ beta, asked + 1
            e = expit(logit)
            found["gram"].append(((X.T * (use * e * (1.0 - e))) @ X)[rows, columns][None])
            found["score"].append(((use * (w - e)) @ X)[None])
            found["likelihood"].append(np.array([use @ (w * logit - np.logaddexp(0.0, logit))]))
        try:
            question = procedure.send(Statistics({name: np.array(one) for name, one in found.items()}))
        except StopIteration as done:
            return done.value, asked


CASES = [(1, 150, 4, 0.5, 0.0), (2, 150, 12, 0.1, 0.0), (3, 240, 25, 0.15, -1.0), (4, 600, 3, 1.0, -3.0)]


@pytest.mark.parametrize("case", CASES)
def test_the_treatments_penalty_fits_held_out_people_as_well_as_any(case: tuple) -> None:
    """The likelihood is expanded to second order: a neighbour in the grid may be chosen if it is as good."""
    x, w, fold = people(*case)
    found, asked = conduct(x, w, fold)
    fits = treatment_fits(np.column_stack([np.ones(len(x)), x]), w, fold[None], 1 + x.shape[1])
    place = int(np.argmin(np.abs(np.log(GRID / found.ridge))))
    assert GRID[place] == pytest.approx(float(found.ridge))
    assert fits[place] >= max(fits) - 0.3
    assert max(fits) - min(fits) > 1.0  # or any would do
    assert found.converged
    assert asked <= 4 * found.rounds <= 4 * newton.STEPS


def test_the_outcomes_penalty_is_large_for_noise_and_small_for_signal() -> None:
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(90), rng.normal(size=(90, 12))])
    for y, few in ((rng.normal(size=90), False), (X @ np.arange(13.0) + rng.normal(size=90), True)):
        sums = [
            (X[use].T @ X[use], X[use].T @ y[use])
            for use in [*(np.arange(90) % 3 != k for k in range(3)), slice(None)]
        ]
        gram, score = (np.array(part)[:, None] for part in zip(*sums, strict=True))
        ridge = penalties.held_out_penalty(gram, score, 13)[0]
        assert (ridge < 2.0) if few else (ridge > 90.0)
        square, count = np.array([y @ y]), np.array([90.0])
        ridge = penalties.gcv_penalty(gram[-1], score[-1], square, count, 13)[0]
        assert (ridge < 2.0) if few else (ridge > 90.0)
