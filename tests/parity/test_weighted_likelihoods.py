"""A person of weight 3 adds to every likelihood what three rows add, and a weight of 1 changes nothing."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.methods.causal_rff.classes.log_likelihoods import Classes, ClassLogLikelihoods, ColumnKinds
from unpooled.methods.causal_rff.effects import ClassModel, HeldOutDensity, RegressionModel
from unpooled.methods.causal_rff.observed.regression import Design, Regression
from unpooled.methods.fedci.conditionals import WeightDraws, conditional_effect, individual_effect
from unpooled.methods.fedci.effects import GaussianProcessAverage
from unpooled.methods.fedci.expansion import Dispersion
from unpooled.methods.fedci.held_out import HeldOutDistances, HeldOutErrors
from unpooled.methods.fedci.latent import latent_of_people, latent_of_rows
from unpooled.methods.fedci.model import Kernel, Projection
from unpooled.methods.fedci.stages import Evidence, FeatureEvidence, KernelEvidence
from unpooled.methods.fedci.subsample import KEPT, drawn
from unpooled.methods.fedci.working_response import DEVIATIONS
from unpooled.models.link import link_of
from unpooled.models.outcome_family import family_of
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, make_rows
from unpooled.protocol.stage import Stage

PEOPLE, D, FOLDS = 24, 3, 3
RNG = np.random.default_rng(6)
X, TREATMENT = RNG.normal(size=(PEOPLE, D)), np.arange(PEOPLE) % 2
PREDICTOR = 0.8 * X[:, 0] + 0.5 * np.sin(2.0 * X[:, 1]) + TREATMENT * (0.4 + 0.5 * X[:, 2])
OUTCOMES = {
    "continuous": PREDICTOR + 0.5 * RNG.normal(size=PEOPLE),
    "binary": RNG.binomial(1, 1.0 / (1.0 + np.exp(-PREDICTOR))).astype(float),
    "count": RNG.poisson(np.exp(PREDICTOR)).astype(float),
}
WEIGHT, FOLD = RNG.integers(1, 4, PEOPLE).astype(float), np.arange(PEOPLE) // 2 % FOLDS
COPIES = np.repeat(np.arange(PEOPLE), WEIGHT.astype(int))
FAMILIES, KINDS = list(OUTCOMES), ["projection", "exact", "diagonal"]


def standard(family: str) -> np.ndarray:
    outcome = OUTCOMES[family]
    return outcome if family == "continuous" else (outcome - outcome.mean()) / outcome.std()


def rows(
    family: str, people: np.ndarray | None = None, weight: np.ndarray | None = None, **changed: Any
) -> Rows:
    who = np.arange(PEOPLE) if people is None else people
    return make_rows(
        X[who], TREATMENT[who].astype(float), standard(family)[who], fold=FOLD[who], site=0,
        **{"weight": weight, **changed},
    )  # fmt: skip


def both(family: str) -> tuple[Rows, Rows]:
    """The people with weights of 1, 2 and 3, and the table with that many rows of each."""
    return rows(family, weight=WEIGHT), rows(family, COPIES)


def evidence_of(kind: str, family: str) -> Evidence:
    outcome = OUTCOMES[family]
    link = link_of(family, outcome.mean(), outcome.std())
    shared: dict[str, Any] = {
        "site_distances": jnp.asarray([[0.0, 1.0], [1.0, 0.0]]), "family": "matern52", "shifts": True,
        "coupled": True, "noisy": link is None,
    }  # fmt: skip
    if kind == "projection":
        return FeatureEvidence(Projection(**shared, correlation=jnp.eye(D), components=2), link)
    inducing = jnp.asarray(np.random.default_rng(2).normal(size=(4, D)))
    structure = Kernel(**shared, inducing=inducing, ard=False, tied=False)
    return KernelEvidence(structure, link, diagonal=kind == "diagonal")


def point(evidence: Evidence, fold: int = -1) -> Parameters:
    directions = np.array([[1.0, 0.3, -0.2], [-0.4, 0.2, 0.9]])
    free = evidence.structure.start(directions, np.array([0.5, 0.7]))
    rng = np.random.default_rng(3)
    free = {name: np.asarray(one) + 0.2 * rng.normal(size=np.shape(one)) for name, one in free.items()}
    fixed: Arrays = {"fold": np.array(fold)}
    if evidence.link is not None:
        beta = 0.3 * rng.normal(size=(2, evidence.structure.width)) / np.sqrt(evidence.structure.width)
        dispersion = np.full(2, 0.3 if evidence.link.counts else 0.0)
        deviations = 0.1 * rng.normal(size=(DEVIATIONS, *beta.shape)) / np.sqrt(evidence.structure.width)
        fixed["about"] = {
            "free": free, "beta": beta, "deviations": deviations, "dispersion": dispersion,
            "known": np.ones(()),
        }  # fmt: skip
    return Parameters(free, fixed)


def same(first: Any, second: Any, rtol: float = 1e-8) -> None:
    one, other = (jax.tree.map(np.asarray, tree) for tree in (first, second))
    largest = max((np.max(np.abs(leaf), initial=0.0) for leaf in jax.tree.leaves(other)), default=0.0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * largest), one, other)


def told(stage: Stage, asked: Parameters, each: Rows) -> Any:
    return eqx.filter_jit(stage.statistics)(asked, each)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sums_of_fedci_are_those_of_the_repeated_rows(kind: str, family: str) -> None:
    evidence = evidence_of(kind, family)
    for fold in (-1, 1):
        weighted, repeated = (told(evidence, point(evidence, fold), each) for each in both(family))
        same(weighted, repeated)
    plain = told(evidence, point(evidence), rows(family))
    with pytest.raises(AssertionError):
        same(plain, repeated)
    same(told(evidence, point(evidence), rows(family, weight=np.ones(PEOPLE))), plain, rtol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_two_halves_of_a_person_are_one_person(kind: str) -> None:
    evidence = evidence_of(kind, "continuous")
    twice = np.repeat(np.arange(PEOPLE), 2)
    halves = told(evidence, point(evidence), rows("continuous", twice, np.full(2 * PEOPLE, 0.5)))
    found = told(evidence, point(evidence), rows("continuous"))
    same(halves, found)


def test_dispersions_of_counts_are_those_of_the_repeated_rows() -> None:
    evidence = evidence_of("projection", "count")
    same(*(told(Dispersion(evidence), point(evidence), each) for each in both("count")))


def held_out(evidences: tuple[Evidence, ...]) -> Parameters:
    fitted, shifts = [], []
    rng = np.random.default_rng(4)
    for evidence in evidences:
        asked = point(evidence)
        beta = rng.normal(size=(FOLDS, 5, 2, evidence.structure.width)) / np.sqrt(evidence.structure.width)
        each = {"free": asked.free, **({"about": asked.fixed["about"]} if evidence.link is not None else {})}
        copied = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], FOLDS, axis=0), each)
        fitted.append({**copied, "beta": beta})
        shifts.append(0.1 * rng.normal(size=(FOLDS, 5, 2)))
    fixed = {"fitted": tuple(fitted), "share": np.array([0.3, 0.7]), "log_odds": np.zeros((FOLDS, 1 + D))}
    return Parameters(fixed=fixed, per_site={"site_shift": tuple(shifts)})


@pytest.mark.parametrize("family", FAMILIES)
def test_held_out_errors_are_those_of_the_repeated_rows(family: str) -> None:
    evidences = tuple(evidence_of(kind, family) for kind in ("projection", "exact"))
    asked = held_out(evidences)
    same(*(told(HeldOutErrors(evidences), asked, each) for each in both(family)))


def test_held_out_distances_count_weights_and_know_how_many_people_there_are() -> None:
    evidences = tuple(evidence_of(kind, "continuous") for kind in ("projection", "exact"))
    weighted, repeated = (
        told(HeldOutDistances(evidences), held_out(evidences), each).summed for each in both("continuous")
    )
    for name in ("beyond", "total"):
        same(weighted[name], repeated[name])
    same(weighted["noise"][:, [0, 2]], repeated["noise"][:, [0, 2]])
    # Copies of a person are not further people.
    arms = np.stack([1 - TREATMENT, TREATMENT])
    np.testing.assert_allclose(weighted["squares"][:, 0], arms @ WEIGHT**2)
    np.testing.assert_allclose(repeated["squares"][:, 0], arms @ WEIGHT)


@pytest.mark.parametrize("kind", ["projection", "exact"])
def test_effects_are_those_of_the_repeated_rows(kind: str) -> None:
    evidence = evidence_of(kind, "continuous")
    asked = point(evidence)
    rng = np.random.default_rng(5)
    draws = WeightDraws(
        asked.free, rng.normal(size=(3, 2, evidence.structure.width)), rng.normal(size=(3, 2))
    )
    weighted, repeated = both("continuous")
    same(*(conditional_effect(evidence, draws, each, jnp.asarray(X)) for each in (weighted, repeated)))
    # The noise of a person's own two outcomes is that of one person, whatever the weight.
    first, second = (
        [np.asarray(part) for part in individual_effect(evidence, draws, each, None, jnp.asarray(0.4))]
        for each in (weighted, repeated)
    )
    same(
        [part[..., :PEOPLE] for part in first],
        [part[..., np.searchsorted(COPIES, np.arange(PEOPLE))] for part in second],
    )
    average = GaussianProcessAverage(evidence)
    fixed = {"beta": draws.beta, "key": jax.random.key_data(jax.random.key(1))}
    question = Parameters(asked.free, fixed, {"site_shift": draws.shift})
    found, expected = (told(average, question, each).per_site for each in (weighted, repeated))
    for name in ("sample", "weight"):
        same(found[name], expected[name])


@pytest.mark.parametrize("kind", ["exact", "diagonal"])
def test_with_a_link_latent_functions_are_those_of_the_repeated_rows(kind: str) -> None:
    evidence, draws = evidence_of(kind, "binary"), 3000
    asked = point(evidence)
    beta = np.repeat(asked.fixed["about"]["beta"][None], draws, axis=0)
    known = WeightDraws(asked.free, beta, np.zeros((draws, 2)), asked.fixed["about"])
    key = jax.random.key(2)
    for of in (latent_of_rows, lambda *args: latent_of_people(*args[:3], jnp.asarray(X), args[3])):
        first, second = (np.asarray(of(evidence, known, each, key)) for each in both("binary"))
        copies = np.searchsorted(COPIES, np.arange(PEOPLE))
        second = second[:, copies] if second.shape[1] >= len(COPIES) else second
        first = first[:, :PEOPLE]
        spread = second.std(axis=0)
        error = np.sqrt(2.0 / draws) * spread
        assert np.all(np.abs(first.mean(axis=0) - second.mean(axis=0)) < 5.0 * error)
        np.testing.assert_allclose(first.std(axis=0), spread, rtol=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sums_of_causal_rff_are_those_of_the_repeated_rows(family: str) -> None:
    rng = np.random.default_rng(7)
    design = Design(jnp.asarray(rng.normal(size=(3, D))), jnp.arange(D), D)
    outcome = OUTCOMES[family]
    kind = family_of(family, outcome.mean(), outcome.std(), link="logit", counts="negative_binomial")
    link = link_of(family, outcome.mean(), outcome.std()) if family == "count" else None
    coefficients = {
        "length": np.array(1.3),
        "common": 0.3 * rng.normal(size=(2, design.width)),
        "noise": np.array([0.5, 0.8]),
    }
    if link is not None:
        coefficients["dispersion"] = np.array([0.3, 0.6])
    own = {"site": 0.2 * rng.normal(size=(2, 1))}
    regression = Regression(design, kind, 1, differ=True, link=link)
    asked = Parameters(fixed={"fold": np.array(1), **coefficients}, per_site=own)
    same(*(told(regression, asked, each) for each in both(family)))
    columns, classes = ColumnKinds(jnp.array([0]), jnp.arange(1, D)), 3
    views = ClassLogLikelihoods(
        classes=rng.normal(size=classes), one=-rng.uniform(0.1, 1.0, (classes, 1)),
        zero=-rng.uniform(0.1, 1.0, (classes, 1)), centre=rng.normal(size=(classes, D - 1)),
        weight=rng.uniform(0.5, 2.0, (classes, D - 1)), level=rng.normal(size=classes),
        treatment=-rng.uniform(0.1, 1.0, (2, classes)), outcome=rng.normal(size=(2, classes)),
        variance=rng.uniform(0.0, 0.3, (2, classes)), noise=np.array([0.5, 0.8]),
        chance=-rng.uniform(0.1, 1.0, (2, 2, classes)),
    )._asdict()  # fmt: skip
    by_site = {name: views.pop(name) for name in ("classes", "treatment", "outcome", "variance", "chance")}
    expectation = Parameters(
        fixed={"views": views, "fold": np.array(1), "temper": np.ones(())}, per_site=by_site
    )
    stage = Classes(columns, kind, drawn=False, link=link)
    same(*(told(stage, expectation, each) for each in both(family)))
    drawn_once = Classes(columns, kind, drawn=True, link=link)
    sampled = Parameters(
        fixed={"views": views, "fold": np.array(-1), "key": jax.random.key_data(jax.random.key(3))},
        per_site=by_site,
    )
    people = told(drawn_once, sampled, rows(family, weight=WEIGHT)).per_site["people"]
    np.testing.assert_allclose(people.sum(axis=1), np.stack([1 - TREATMENT, TREATMENT]) @ WEIGHT)
    models = (RegressionModel(design, kind, link), ClassModel(columns, kind, link))
    draws = (coefficients, views), (own, by_site)
    shared, at_site = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], 4, axis=0), draws)
    question = Parameters(fixed={"fold": np.array(1), "draws": shared}, per_site={"draws": at_site})
    same(*(told(HeldOutDensity(models), question, each) for each in both(family)))


def test_one_draw_of_a_class_varies_as_those_of_everybody_represented() -> None:
    """Weights add up to the sum of their squares: Σ w² s(1 − s) is Σ w s(1 − s) if w and s are unrelated."""
    rng = np.random.default_rng(1)
    weight = rng.lognormal(sigma=0.8, size=4000)
    weight *= weight.sum() / (weight**2).sum()
    share = rng.uniform(0.05, 0.95, 4000)
    totals = (rng.uniform(size=(2000, 4000)) < share) @ weight
    assert totals.mean() == pytest.approx(weight @ share, rel=5e-3)
    assert totals.var() == pytest.approx(weight @ (share * (1.0 - share)), rel=0.15)


def test_a_subsample_has_everybody_with_the_same_chance() -> None:
    count = 3 * KEPT
    rng = np.random.default_rng(2)
    weight = rng.choice([0.1, 10.0], count)
    made = make_rows(
        np.zeros((count, 1)), (np.arange(count) % 2).astype(float), np.zeros(count), fold=np.zeros(count),
        site=0, weight=weight,
    )  # fmt: skip
    chosen = np.asarray(drawn(made))
    assert len(np.unique(chosen)) == KEPT
    assert np.mean(weight[chosen] > 1.0) == pytest.approx(np.mean(weight > 1.0), abs=0.05)


def tables(people: int = 60) -> dict[str, pd.DataFrame]:
    found = {}
    for seed, name in enumerate(("north", "south")):
        rng = np.random.default_rng(seed)
        x, treated = rng.normal(size=(people, 2)), rng.integers(0, 2, people)
        y = x[:, 0] + treated * (1.0 + x[:, 1]) + rng.normal(size=people)
        found[name] = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "w": treated, "y": y, "weight": 1.0})
    return found


STUDY: dict[str, Any] = {"treatment": "w", "outcome": "y", "covariates": ["a", "b"]}
FITS = {
    "FedCI": lambda: up.FedCI(seed=3, draws=40, evaluations=6, basis=5),
    "FedCI, diagonal": lambda: up.FedCI(seed=3, draws=40, evaluations=6, basis=5, structure="isotropic"),
    "FedCI, variational": lambda: up.FedCI(
        seed=3, draws=40, inference="variational", rounds=8, monte_carlo=2
    ),
    "CausalRFF": lambda: up.CausalRFF(
        seed=3, draws=40, classes=2, starts=2, rounds=6, sweeps=6, frequencies=3
    ),
    "CausalRFF, observed": lambda: up.CausalRFF(seed=3, draws=40, confounding="observed", frequencies=3),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
@pytest.mark.parametrize("name", FITS)
def test_weights_of_one_change_no_fit(name: str) -> None:
    people = 340 if name == "FedCI, diagonal" else 60
    weighted, plain = (
        FITS[name]().fit(up.Study(**STUDY, **more), tables(people)) for more in ({"weight": "weight"}, {})
    )
    np.testing.assert_allclose(weighted.ate_draws(), plain.ate_draws(), rtol=1e-12)
    np.testing.assert_allclose(weighted.ite("north"), plain.ite("north"), rtol=1e-12)
    np.testing.assert_allclose(
        weighted.effect(tables(people)["south"], site="south"),
        plain.effect(tables(people)["south"], site="south"),
        rtol=1e-12,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
@pytest.mark.parametrize("make", [up.FedCI, up.CausalRFF])
def test_weights_undo_sampling_by_what_no_covariate_tells(make: Any) -> None:
    """The effect in the population is 1. People in whom it is 2 are four times as likely to be in the table
    as those in whom it is 0, and no covariate tells them apart."""
    rng = np.random.default_rng(8)
    sites = {}
    for name in ("north", "south"):
        large = rng.integers(0, 2, 1200)
        chance = np.where(large == 1, 0.8, 0.2)
        kept = rng.uniform(size=1200) < chance
        large, chance = large[kept], chance[kept]
        x, treated = rng.normal(size=len(large)), rng.integers(0, 2, len(large))
        y = x + 2.0 * treated * large + rng.normal(size=len(large))
        sites[name] = pd.DataFrame({"x": x, "w": treated, "y": y, "weight": 1.0 / chance})
    known = {"treatment": "w", "outcome": "y", "covariates": ["x"]}
    settings: dict[str, Any] = {"draws": 200, "seed": 1}
    if make is up.CausalRFF:
        settings["confounding"] = "observed"
    weighted = make(**settings).fit(up.Study(**known, weight="weight"), sites)
    ignored = make(**settings).fit(up.Study(**known), sites)
    lower, upper = weighted.ate_interval(alpha=0.01)
    assert lower < 1.0 < upper
    assert ignored.ate_interval(alpha=0.01)[0] > 1.2
