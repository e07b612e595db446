"""Effects in a population elsewhere, against plain NumPy."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from oracle.world import build, frames
from unpooled import AIPW, CausalFI, CausalRFF, FedCI, Limits, Study, load
from unpooled.errors import DataError, FitError, LimitRefusal, StudyError
from unpooled.estimators import transport as module
from unpooled.estimators.transport import distances_of, moments_of, standard_covariates
from unpooled.maths.kernels import correlation
from unpooled.methods.fedci.elsewhere import given_others, new_shift, with_new_site
from unpooled.methods.fedci.model import NUGGET

COVARIATES = ["a", "b", "c"]
STUDY = Study(treatment="w", outcome="y", covariates=COVARIATES)
SIZES = {"north": 60, "south": 90, "east": 70}
TABLES = frames(SIZES)
RNG = np.random.default_rng(3)
TARGET = pd.DataFrame(RNG.normal(0.5, 1.0, (130, 3)), columns=COVARIATES)


@pytest.fixture(scope="module")
def aipw() -> AIPW:
    return AIPW(site_terms="none").fit(STUDY, TABLES)


@pytest.fixture(scope="module")
def rff() -> CausalRFF:
    return CausalRFF(confounding="observed", frequencies=0).fit(STUDY, TABLES)


@pytest.fixture(scope="module")
def fedci() -> FedCI:
    return FedCI(structure="isotropic", draws=80, evaluations=8, basis=6).fit(STUDY, TABLES)


@pytest.mark.slow
def test_the_average_of_regressions_is_that_of_numpy(aipw: AIPW) -> None:
    stacked = pd.concat(TABLES.values())
    sd, mean = stacked[COVARIATES].std(ddof=0), stacked[COVARIATES].mean()
    design = np.column_stack([np.ones(len(TARGET)), (TARGET - mean) / sd])
    coefficients = aipw.result_.draws.by_site["outcome"][:, 0]
    by_hand = design.mean(axis=0) @ np.swapaxes(coefficients, 1, 2)
    y = stacked["y"]
    found = aipw.transport(TARGET, sample=False)
    np.testing.assert_allclose(found.mean_draws, y.mean() + y.std(ddof=0) * by_hand, rtol=1e-9)
    table = found.effects().loc["target"]
    assert table.loc["difference", "estimate"] == pytest.approx(found.ate())
    assert tuple(table.loc["difference", ["lower", "upper"]]) == pytest.approx(found.ate_interval())


@pytest.mark.slow
def test_moments_elsewhere_are_those_that_sites_tell(fedci: FedCI) -> None:
    result = fedci.result_
    for place, site in enumerate(result.sites):
        covariates = standard_covariates(result, TABLES[site])
        found = moments_of(covariates, result, np.ones(len(covariates)))
        np.testing.assert_allclose(found, result.scaling.known.moments[place], atol=1e-9)
        distances = distances_of(found, result)
        np.testing.assert_allclose(distances, result.scaling.site_distances[place], atol=1e-9)


@pytest.mark.slow
def test_a_new_shift_has_the_mean_and_spread_of_the_joint_normal() -> None:
    world = build("isotropic")
    distances, free = np.array([0.3, 0.8, 0.5]), world.free
    known = np.asarray(world.context.site_distances)
    every = np.block([[known, distances[:, None]], [distances, np.zeros(1)]])
    covariance = np.asarray(
        correlation("squared_exponential", jnp.asarray(every / np.exp(2.0 * free["closeness"])))
    )
    weights = np.linalg.solve(covariance[:3, :3], covariance[:3, 3])
    spread = np.sqrt(1.0 - weights @ covariance[:3, 3])
    evidence = with_new_site(world.evidence, distances)
    found = given_others(evidence.structure.site_root(free))
    np.testing.assert_allclose(found[0], weights, atol=1e3 * NUGGET)
    np.testing.assert_allclose(found[1], spread, atol=1e3 * NUGGET)
    others = np.broadcast_to(RNG.normal(size=(2, 3)), (40_000, 2, 3))
    drawn = np.asarray(new_shift(evidence, free, jnp.asarray(others), jax.random.key(0)))
    root = np.asarray(evidence.structure.shift_factor(free))
    np.testing.assert_allclose(
        drawn.mean(axis=0), others[0] @ weights, atol=5.0 * spread * root.max() / 200.0
    )
    np.testing.assert_allclose(np.cov(drawn.T), spread**2 * root @ root.T, rtol=0.1, atol=0.01 * spread**2)


@pytest.mark.slow
def test_blocks_of_people_are_at_the_same_new_site(rff: CausalRFF, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without remainders, which are drawn for people and not for the site.
    models = rff, FedCI(structure="projection", draws=40, evaluations=8).fit(STUDY, TABLES)
    whole = [model.transport(TARGET, sample=False).mean_draws for model in models]
    monkeypatch.setattr(module, "BLOCK", 48)
    parts = [model.transport(TARGET, sample=False).mean_draws for model in models]
    for part, one in zip(parts, whole, strict=True):
        np.testing.assert_allclose(part, one, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_people_who_are_a_sample_make_intervals_wider(rff: CausalRFF) -> None:
    few = TARGET.head(12)
    sd = [rff.transport(few, sample=sample).mean_draws.std(axis=0) for sample in (False, True)]
    assert np.all(sd[0] < sd[1])


@pytest.mark.slow
def test_an_unknown_site_makes_intervals_wider(rff: CausalRFF, fedci: FedCI) -> None:
    alike = CausalRFF(confounding="observed", frequencies=0, site_terms="none").fit(STUDY, TABLES)
    sd = [model.transport(TARGET, sample=False).mean_draws.std(axis=0) for model in (alike, rff)]
    assert np.all(sd[0] < sd[1])
    moved = TARGET + 6.0
    near, far = (fedci.transport(one, sample=False) for one in (TARGET, moved))
    assert np.all(near.mean_draws.std(axis=0) < far.mean_draws.std(axis=0))
    assert near.checks["passed"].all() and not far.checks["passed"].any()


@pytest.mark.slow
def test_effects_of_people_elsewhere_average_to_the_transported_effect(rff: CausalRFF) -> None:
    each = rff.effect_draws(TARGET, site=None)
    found = rff.transport(TARGET, sample=False)
    np.testing.assert_allclose(each.mean(axis=1), np.diff(found.mean_draws)[:, 0], rtol=1e-9)
    assert rff.effect(TARGET, site=None).shape == (len(TARGET),)


@pytest.mark.slow
def test_a_loaded_model_needs_no_tables(fedci: FedCI, rff: CausalRFF, tmp_path: Path) -> None:
    for name, model in (("fedci", fedci), ("rff", rff)):
        loaded = load(model.save(tmp_path / name))
        found = loaded.transport(TARGET)
        np.testing.assert_allclose(found.mean_draws, model.transport(TARGET).mean_draws)


@pytest.mark.slow
def test_what_cannot_be_transported_is_refused_by_name(aipw: AIPW) -> None:
    with pytest.raises(DataError, match="'c'"):
        aipw.transport(TARGET.drop(columns="c"))
    transfer = CausalRFF(confounding="observed", frequencies=0, site_terms="transfer").fit(STUDY, TABLES)
    with pytest.raises(StudyError, match="site_terms = 'transfer'"):
        transfer.transport(TARGET)
    gaps = Study(treatment="w", outcome="y", covariates=["a", "b"], incomplete=["c"])
    model = CausalFI(draws=40, sweeps=4, most_sweeps=4, structure="linear").fit(gaps, TABLES)
    with pytest.raises(StudyError, match="incomplete: c"):
        model.transport(TARGET)


# ---------------------------------------------------------------------------------------- moments


def entropy_weights(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights of one stacked table with these means, of least relative entropy, by a general optimiser."""
    found = minimize(
        lambda t: np.log(np.sum(np.exp((values - target) @ t))), np.zeros(values.shape[1]), tol=1e-14,
        options={"gtol": 1e-10},
    )  # fmt: skip
    weight = np.exp((values - target) @ found.x)
    return weight / weight.sum()


@pytest.mark.slow
def test_weights_of_moments_are_those_of_one_stacked_table(aipw: AIPW) -> None:
    stacked = pd.concat(TABLES.values())
    asked = {"a": (0.3, 1.0), "b": 0.2}
    values = np.column_stack([stacked["a"], stacked["b"], stacked["a"] ** 2])
    weight = entropy_weights(values, np.array([0.3, 0.2, 1.0 + 0.3**2]))
    np.testing.assert_allclose(weight @ values, [0.3, 0.2, 1.09], atol=1e-4)
    sd, mean = stacked[COVARIATES].std(ddof=0), stacked[COVARIATES].mean()
    design = np.column_stack([np.ones(len(stacked)), (stacked[COVARIATES] - mean) / sd])
    coefficients = aipw.result_.draws.by_site["outcome"][:, 0].mean(axis=0)
    y = stacked["y"]
    by_hand = y.mean() + y.std(ddof=0) * (coefficients @ (weight @ design))
    found = aipw.transport_to_moments(asked)
    spread = found.mean_draws.std(axis=0) / np.sqrt(len(found.mean_draws))
    assert np.all(np.abs(found.mean_draws.mean(axis=0) - by_hand) < 4.0 * spread + 0.01)
    effective = 1.0 / np.sum(weight**2) / len(stacked)
    assert found.checks["found"].iloc[0] == pytest.approx(effective, rel=1e-3)


@pytest.mark.slow
def test_a_target_at_the_study_s_own_means_changes_nothing(rff: CausalRFF) -> None:
    stacked = pd.concat(TABLES.values())
    found = rff.transport_to_moments({name: float(stacked[name].mean()) for name in COVARIATES})
    assert found.checks["found"].iloc[0] == pytest.approx(1.0, abs=1e-6)
    assert found.ate() == pytest.approx(rff.transport(stacked).ate(), abs=0.05)


@pytest.mark.slow
def test_moments_that_cannot_be_had_are_refused(aipw: AIPW) -> None:
    with pytest.raises(FitError, match="by weighting"):
        aipw.transport_to_moments({"a": 50.0})
    with pytest.raises(StudyError, match="'aa'"):
        aipw.transport_to_moments({"aa": 0.0})
    with pytest.raises(StudyError, match="mean and sd"):
        aipw.transport_to_moments({"a": (0.0, -1.0)})
    highest = np.sort(pd.concat(TABLES.values())["a"])[::-1]
    far = aipw.transport_to_moments({"a": float(highest[:8].mean())})
    assert not far.checks["passed"].any()
    limited = AIPW(site_terms="none", folds=1).fit(STUDY, TABLES, limits=Limits())
    with pytest.raises(LimitRefusal, match="5 people or fewer"):
        limited.transport_to_moments({"a": float(highest[:2].mean())})
    loaded = AIPW(site_terms="none")
    loaded.result_ = aipw.result_
    with pytest.raises(StudyError, match="attach"):
        loaded.transport_to_moments({"a": 0.0})
