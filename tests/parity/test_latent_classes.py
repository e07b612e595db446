"""EM over the sites is EM over the stacked rows; its bound never falls; Gibbs draws what it says it draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from oracle import latent_classes as oracle
from unpooled.methods.causal_rff.classes import em, gibbs, mixture
from unpooled.methods.causal_rff.classes.cells import PRIOR_LEVELS, Component, Counted, Variances, make_cells
from unpooled.methods.causal_rff.classes.log_likelihoods import (
    PARTS,
    Classes,
    ClassLogLikelihoods,
    ColumnKinds,
    as_draws,
)
from unpooled.models.outcome_family import Family, family_of
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import Ask, Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows

SITES, CLASSES = 3, 3
COLUMNS = ColumnKinds(jnp.arange(4), jnp.arange(4, 6))
pytestmark = pytest.mark.slow


def outcome(binary: bool) -> Family:
    return family_of("binary" if binary else "continuous", 0.5, 1.0, link="logit")


def people(binary: bool, seed: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    size = 70
    z = rng.integers(0, CLASSES, size)
    site = rng.integers(0, SITES, size)
    ones = (rng.random((size, 4)) < rng.random((CLASSES, 4))[z]).astype(float)
    w = (rng.random(size) < 0.3 + 0.2 * z / CLASSES + 0.1 * site).astype(int)
    y = z - 1.0 + 0.7 * w * z + 0.5 * site + 0.4 * rng.standard_normal(size)
    return {
        "ones": ones,
        "numbers": rng.standard_normal((size, 2)) + z[:, None],
        "w": w,
        "y": (y > 0.5).astype(float) if binary else y - y.mean(),
        "site": site,
    }


def site_rows(made: dict[str, np.ndarray], binary: bool) -> list[Rows]:
    """The rows as sites hold them: 0/1 columns and outcomes are positive where they are one."""
    rows = []
    for site in range(SITES):
        mine = made["site"] == site
        covariates = np.column_stack([made["ones"][mine] - 0.5, made["numbers"][mine]])
        outcome = made["y"][mine] - (0.5 if binary else 0.0)
        fold = np.zeros(mine.sum())
        rows.append(make_rows(covariates, made["w"][mine].astype(float), outcome, fold=fold, site=site))
    return rows


def _statistics(parameters: Parameters, stage: Classes, rows: Rows) -> Statistics:
    return stage.statistics(parameters, rows)


def answer(stage: Classes, question: Ask, rows: list[Rows]) -> Statistics:
    """What an engine does: ask every site, sum what is summed, stack what is kept by site."""
    asked = [question.parameters.at(place) for place in range(len(rows))]
    replies = [one_by_one(_statistics, told, stage, each) for told, each in zip(asked, rows, strict=True)]
    total = jax.tree.map(
        lambda *leaves: sum(np.asarray(leaf) for leaf in leaves), *[r.summed for r in replies]
    )
    each = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *[r.per_site for r in replies])
    return Statistics(total, each)


def begun(model: mixture.Mixture, classes: list[int]) -> em.Learned:
    return em.starts(model, classes, SITES, np.full(4, 0.5), 1)


@pytest.mark.parametrize("binary", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_round_over_the_sites_is_a_round_over_the_stacked_rows(binary: bool) -> None:
    made = people(binary)
    model = mixture.make_mixture(CLASSES, COLUMNS, binary=binary)
    stage = Classes(COLUMNS, outcome(binary), drawn=False)
    learned = begun(model, [CLASSES])
    for _ in range(2):  # from the start nothing is said of outcomes: the second round says all
        state = jax.tree.map(lambda leaf: np.asarray(leaf)[0], learned.states)
        likelihoods = {name: np.asarray(value)[0] for name, value in learned.likelihoods._asdict().items()}
        learned = _one_round(model, stage, learned, site_rows(made, binary))
    r = oracle.responsibilities(likelihoods, made, binary)
    counts = oracle.counted(r, made, SITES)
    shares = state.shares
    for _ in range(2):
        shares = oracle.shares_step(shares, counts["people"].sum(axis=1), mixture.CONCENTRATION)
    np.testing.assert_allclose(learned.states.shares[0], shares, rtol=1e-10)
    for name, cells, people_of, total in (
        ("outcome", model.outcome, counts["people"].reshape(SITES, -1), counts["outcome"].reshape(SITES, -1)),
        ("treatment", model.treatment, counts["people"].sum(axis=1), counts["people"][:, 1]),
    ):
        values, mean, spread = _cells(cells, getattr(state, name), people_of, total, counts["square"])
        np.testing.assert_allclose(getattr(learned.states, name).values[0], values, rtol=1e-10)
        if name == "outcome":
            by_arm = (SITES, 2, CLASSES)
            np.testing.assert_allclose(
                learned.likelihoods.outcome[0], mean.reshape(by_arm), rtol=1e-9, atol=1e-12
            )
            np.testing.assert_allclose(learned.likelihoods.variance[0], spread.reshape(by_arm), rtol=1e-9)
    ones = mixture.BETA + counts["ones"]
    count = counts["people"].sum(axis=(0, 1))[:, None]
    expected = oracle.digamma(ones) - oracle.digamma(2 * mixture.BETA + count)
    np.testing.assert_allclose(learned.likelihoods.one[0], expected, rtol=1e-10)
    kappa, _, rate = mixture.NORMAL
    centre = counts["numbers"] / (kappa + count)
    np.testing.assert_allclose(learned.likelihoods.centre[0], centre, rtol=1e-10)
    shape = mixture.NORMAL[1] + count / 2
    about = counts["squares"] - 2 * centre * counts["numbers"] + count * centre**2 + kappa * centre**2
    np.testing.assert_allclose(learned.likelihoods.weight[0], shape / (rate + about / 2), rtol=1e-10)


def _one_round(model: mixture.Mixture, stage: Classes, learned: em.Learned, rows: list[Rows]) -> em.Learned:
    procedure = em.learn(model, learned, rounds=1, fold=np.full(1, -1), annealed=False)
    question = next(procedure).question  # type: ignore[attr-defined]
    try:
        procedure.send(answer(stage, question, rows))
    except StopIteration as done:
        return done.value
    raise AssertionError("one round was asked for")


def _cells(cells: Any, state: Variances, count: np.ndarray, total: np.ndarray, square: np.ndarray) -> tuple:
    """Three EM steps and the solve, densely."""
    terms = oracle.Terms(
        np.asarray(cells.common), np.asarray(cells.site), cells.common_of, cells.site_of, SITES
    )
    v, tight = np.array(state.values), np.array(state.tight)
    expected, learned = np.array(cells.expected), np.array(cells.learned)
    arm = np.array(cells.arm)
    for _ in range(3):
        weight, score = _said(cells, v, tight, count, total)
        new = oracle.variance_step(terms, v, expected, learned, PRIOR_LEVELS, weight, score)
        if not cells.binary:
            mean, spread = terms.cells(*terms.posterior(v, weight, score), count.shape)
            errors = count * (mean**2 + spread) - 2 * total * mean
            for a in (0, 1):
                left = square[a] + errors[:, arm == a].sum() + PRIOR_LEVELS * expected[-2 + a]
                new[-2 + a] = left / (count[:, arm == a].sum() + PRIOR_LEVELS)
        v = new
        if cells.binary:
            weight, score = _said(cells, v, tight, count, total)
            mean, spread = terms.cells(*terms.posterior(v, weight, score), count.shape)
            tight = np.sqrt(mean**2 + spread)
    weight, score = _said(cells, v, tight, count, total)
    return v, *terms.cells(*terms.posterior(v, weight, score), count.shape)


def _said(cells: Any, v: np.ndarray, tight: np.ndarray, count: np.ndarray, total: np.ndarray) -> tuple:
    if cells.binary:
        return 2 * oracle.slope(tight) * count, total - count / 2
    noise = v[-2:][np.array(cells.arm)]
    return count / noise, total / noise


@pytest.mark.parametrize("binary", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_the_bound_never_falls(binary: bool) -> None:
    rows = site_rows(people(binary), binary)
    model = mixture.make_mixture(4, COLUMNS, binary=binary)
    stage = Classes(COLUMNS, outcome(binary), drawn=False)
    procedure = em.learn(model, begun(model, [2, 3, 4, 4]), rounds=40, fold=np.full(4, -1), annealed=False)
    bounds, question = [], next(procedure)
    while True:
        try:
            question = procedure.send(answer(stage, question.question, rows))  # type: ignore[attr-defined]
        except StopIteration as done:
            learned = done.value
            break
    bounds = np.array(learned.history)
    # The best model's bound: every model's own never falls, so neither does their largest.
    assert np.all(np.diff(bounds) > -1e-8)
    assert bounds[-1] > bounds[0] + 1.0


def test_what_is_withheld_is_missing_from_all_sums_alike() -> None:
    """Means by class stay means of people, however many cells of arm and class are too small to be sent."""
    made = people(False)
    covariates = np.column_stack([made["ones"] - 0.5, made["numbers"]])
    rows = make_rows(covariates, made["w"].astype(float), made["y"], fold=np.zeros(70), site=0, least=5.0)
    stage = Classes(COLUMNS, outcome(False), drawn=False)
    said = as_draws(begun(mixture.make_mixture(6, COLUMNS, binary=False), [6]).likelihoods, 6)
    one = {"fold": np.array([-1]), "temper": np.array([1.0]), "views": said.shared}
    asked = Parameters(fixed=one, per_site={name: part[:, 0] for name, part in said.by_site.items()})
    found = jax.tree.map(lambda leaf: leaf[0], one_by_one(_statistics, asked, stage, rows))
    count = found.per_site["people"].sum(axis=0)
    assert count.min() < 1e-9 < count.max()
    assert count.sum() < 70.0 - 1e-6
    assert np.all(np.abs(found.summed["numbers"]) <= count[:, None] * np.abs(made["numbers"]).max() + 1e-9)
    assert np.all(found.summed["square"] <= [np.sum(made["y"][made["w"] == w] ** 2) for w in (0, 1)])


def test_draws_of_classes_without_people_stay_within_the_bounds_of_a_question() -> None:
    start = begun(mixture.make_mixture(3, COLUMNS, binary=False), [3]).likelihoods
    far = start._replace(centre=1e3 * start.centre, weight=1e6 * start.weight, outcome=start.outcome - 1e4)
    said = as_draws(far, 3)
    for name, part in {**said.shared, **said.by_site}.items():
        assert np.all((part >= PARTS[name][0]) & (part <= PARTS[name][1]))
    assert np.abs(said.shared["centre"]).max() == PARTS["centre"][1]


@pytest.mark.thorough
def test_fewer_classes_travel_than_there_is_room_for_and_nothing_changes() -> None:
    rows = site_rows(people(False), False)
    stage = Classes(COLUMNS, outcome(False), drawn=False)
    wide, narrow = (mixture.make_mixture(most, COLUMNS, binary=False) for most in (5, 2))
    start = begun(wide, [2])
    said = as_draws(start.likelihoods, 2)
    same = begun(narrow, [2])._replace(likelihoods=ClassLogLikelihoods(**said.shared, **said.by_site))
    found = [_one_round(m, stage, each, rows) for m, each in ((wide, start), (narrow, same))]
    found = [_one_round(m, stage, each, rows) for m, each in zip((wide, narrow), found, strict=True)]
    np.testing.assert_allclose(found[0].bounds, found[1].bounds, rtol=1e-10)
    np.testing.assert_allclose(
        found[0].likelihoods.outcome[..., :2], found[1].likelihoods.outcome, rtol=1e-8, atol=1e-10
    )


# ---------------------------------------------------------------------------- draws


def test_gibbs_draws_gaussian_cells_from_their_exact_posterior() -> None:
    """Variances held fixed: the posterior is Gaussian and known."""
    cells = make_cells(
        (Component(np.ones((2, 1)), 1.0, learned=False),),
        (Component(np.eye(2), 0.5, learned=False),),
        arm=(0, 1),
        binary=False,
    )
    count, total = np.array([[3.0, 2.0], [1.0, 4.0]]), np.array([[2.0, -1.0], [0.5, 3.0]])
    values = np.array([1.0, 0.5, 0.3, 0.3])
    drawn = _draw_cells(cells, values, count, total, fixed_noise=True)
    terms = oracle.Terms(np.ones((2, 1)), np.eye(2), (0,), (1, 1), 2)
    weight, score = count / 0.3, total / 0.3
    mean, spread = terms.cells(*terms.posterior(values, weight, score), (2, 2))
    for s in range(2):
        for c in range(2):
            test = stats.kstest(drawn[:, s, c], "norm", args=(mean[s, c], np.sqrt(spread[s, c])))
            assert test.pvalue > 1e-3


def test_gibbs_draws_logits_from_their_posterior() -> None:
    """One cell, 7 ones of 9: the posterior of its logit is a one-dimensional integral."""
    cells = make_cells(
        (Component(np.ones((1, 1)), 4.0, learned=False),),
        (Component(np.ones((1, 1)), 1e-12, learned=False),),
        arm=(0,),
        binary=True,
    )
    values = np.array([4.0, 1e-12])
    chains, logit = 400, np.zeros((400, 1, 1))
    counted = Counted(jnp.full((chains, 1, 1), 9.0), jnp.full((chains, 1, 1), 7.0), jnp.zeros((chains, 2)))
    variances = Variances(jnp.tile(values, (chains, 1)), jnp.ones((chains, 1, 1)))
    rng = np.random.default_rng(3)
    for _ in range(25):
        variances, logit = gibbs._cells(cells, np.ones((chains, 1)), counted, variances, logit, rng)
    grid = np.linspace(-8, 8, 4001)
    density = np.exp(7 * grid - 9 * np.logaddexp(0, grid) - grid**2 / 8)
    cumulative = np.cumsum(density) / density.sum()
    test = stats.kstest(logit.ravel(), lambda at: np.interp(at, grid, cumulative))
    assert test.pvalue > 1e-3


def _draw_cells(
    cells: Any, values: np.ndarray, count: np.ndarray, total: np.ndarray, *, fixed_noise: bool
) -> np.ndarray:
    chains = 2000
    held = cells if not fixed_noise else _holding_noise(cells)
    counted = Counted(*(jnp.tile(part, (chains, 1, 1)) for part in (count, total)), jnp.ones((chains, 2)))
    variances = Variances(jnp.tile(values, (chains, 1)), jnp.ones((chains, 2, 2)))
    rng = np.random.default_rng(9)
    _, drawn = gibbs._cells(held, np.ones((chains, 2)), counted, variances, np.zeros(count.shape), rng)
    return drawn


def _holding_noise(cells: Any) -> Any:
    from dataclasses import replace

    return replace(cells, learned=(False,) * len(cells.learned))
