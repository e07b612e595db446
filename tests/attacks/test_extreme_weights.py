"""One person's sampling weight is nearly all of a site's, so that weighted sums would be their values.

The site caps weights before it answers anything. Values that a stage derives from parameters, such as
held-out errors, may then still be large for people of large weight; what counts is the product of both.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.disclosure.effective_people import effective_people, spread_out
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.maths.linear_algebra import unpack
from unpooled.methods.causal_rff.effects import HeldOutDensity, RegressionModel
from unpooled.methods.causal_rff.observed.regression import Design
from unpooled.methods.fedci.model import Kernel, Projection
from unpooled.methods.fedci.ridge import Ridge
from unpooled.methods.fedci.stages import Evidence, FeatureEvidence, KernelEvidence
from unpooled.methods.method import with_settings
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows
from unpooled.site.site import adopt

PEOPLE, HEAVY, LEAST = 300, 17, 5.0
FEW = 50
STUDY = up.Study(treatment="w", outcome="y", covariates=["a", "b"], weight="weight")


def tables(outcome: float, weight: float = 1e6) -> dict[str, pd.DataFrame]:
    """The heavy person's outcome is as given; everybody else is the same."""
    found = {}
    for seed, name in enumerate(("north", "south")):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(PEOPLE, 2)), rng.normal(size=PEOPLE)
        own = rng.uniform(0.5, 2.0, PEOPLE)
        found[name] = pd.DataFrame(
            {"a": x[:, 0], "b": x[:, 1], "w": np.arange(PEOPLE) % 2, "y": y, "weight": own}
        )
    found["north"].loc[HEAVY, ["y", "weight"]] = outcome, weight
    return found


def rows_at_north(sites: dict[str, pd.DataFrame], limits: Limits) -> Rows:
    asked = with_settings(STUDY, "fedci", {"draws": 40})
    opened = open_sites(asked, sites, limits)
    agreed = run(reach_agreement(asked), InProcess(opened))
    rows = adopt(opened["north"], adoption(asked, agreed.schema, agreed.scaling)).rows
    assert isinstance(rows, Rows)
    return rows


@pytest.mark.parametrize(("limits", "hidden"), [(NONE, False), (Limits(), True)], ids=["none", "limits"])
def test_a_heavy_persons_outcome_is_hidden_by_the_limits(limits: Limits, hidden: bool) -> None:
    means = []
    for outcome in (-1.0, 1.0):
        rows = rows_at_north(tables(outcome), limits)
        sums = Ridge().statistics(Parameters(fixed={"fold": np.array(-1)}), rows).summed
        people, total = unpack(sums["gram"])[HEAVY % 2, 0, 0], sums["moment"][HEAVY % 2, 0]
        means.append(float(total / people))
        share = np.asarray(rows.present)[HEAVY] / float(people)
        assert (share < 1.0 / LEAST) == hidden
    assert (np.ptp(means) < 0.25 * 2.0) == hidden


def evidence_of(kind: str) -> Evidence:
    shared: dict[str, Any] = {
        "site_distances": jnp.zeros((1, 1)), "family": "matern52", "shifts": False, "coupled": True,
        "noisy": True,
    }  # fmt: skip
    if kind == "projection":
        return FeatureEvidence(Projection(**shared, correlation=jnp.eye(2), components=2), None)
    inducing = jnp.asarray(np.random.default_rng(2).normal(size=(6, 2)))
    structure = Kernel(**shared, inducing=inducing, ard=False, tied=False)
    return KernelEvidence(structure, None, diagonal=kind == "diagonal")


def capped_rows(least: float, outcome: float = 0.0) -> Rows:
    """Weights as a site caps them: the largest has less than a fifth of the sum of squares in its arm."""
    rng = np.random.default_rng(5)
    x, y, weight = rng.normal(size=(FEW, 2)), rng.normal(size=FEW), np.ones(FEW)
    weight[HEAVY], y[HEAVY] = 3.5, outcome
    return make_rows(
        x, (np.arange(FEW) % 2).astype(float), y, fold=np.zeros(FEW), site=0, weight=weight, least=least
    )


@pytest.mark.parametrize("kind", ["projection", "exact", "diagonal"])
def test_features_count_people_by_their_weight(kind: str) -> None:
    """A feature that is near 0 but for few people rests on fewer of them if one has a large weight."""
    evidence = evidence_of(kind)
    directions = np.array([[1.0, 0.3], [0.2, 1.0]])
    free = evidence.structure.start(directions, np.array([0.5, 0.5]))
    free = {**free, "length": np.full_like(free["length"], np.log(0.35))}
    asked = Parameters(free, {"fold": np.array(-1)})
    rows = capped_rows(LEAST)
    sums = eqx.filter_jit(evidence.statistics)(asked, rows).summed
    gram = np.asarray(unpack(sums["gram"]))
    size = evidence.structure.width
    told = [gram[arm] if gram.ndim == 3 else gram[arm * size :, arm * size :][:size, :size] for arm in (0, 1)]
    features = np.asarray(evidence.structure.features(free, rows.covariates))[:FEW, 3:]
    weight = np.asarray(rows.present)[:FEW]
    dropped = by_weight = 0
    for arm in (0, 1):
        members = np.arange(FEW) % 2 == arm
        each = (weight * members)[:, None] * features**2
        people = np.asarray(effective_people(jnp.asarray(each.T)))
        kept = np.diagonal(told[arm])[3:] > 0.0
        if kind != "projection":  # there, people who dominate a feature count less in all of them
            assert np.all(people[kept] > LEAST)
        dropped += np.sum(~kept)
        plain = np.asarray(effective_people(jnp.asarray((members[:, None] * features**2).T)))
        by_weight += np.sum(~kept & (plain > LEAST))
    assert kind == "projection" or (dropped > 0 and by_weight > 0)


def test_held_out_errors_of_heavy_people_are_capped_by_their_weight() -> None:
    rng = np.random.default_rng(1)
    weight = rng.lognormal(sigma=0.5, size=60)
    errors = rng.standard_t(2.0, size=60)
    for of, power in ((np.sqrt(weight), 2), (weight, 1)):
        told = np.asarray(spread_out(jnp.asarray(errors), jnp.asarray(of), LEAST))
        centre = np.median(errors)
        each = of**power * np.abs(told - centre) ** power
        assert each.sum() / each.max() > LEAST
        assert np.mean(np.isclose(told, errors)) > 0.5  # others stay as they are
        # Without the weights a heavy person would have dominated.
        plain = np.asarray(spread_out(jnp.asarray(errors), jnp.ones(60), LEAST))
        assert not np.allclose(plain, told)


def test_a_density_far_from_the_others_does_not_single_out_a_heavy_person() -> None:
    """The coordinator sends coefficients under which one outcome is most unlikely."""
    design = Design(jnp.zeros((0, 2)), jnp.arange(2), 2)
    stage = HeldOutDensity((RegressionModel(design, Gaussian()),))
    draws = {
        "length": np.ones(3), "common": np.zeros((3, 2, 3)), "noise": np.full((3, 2), 0.05),
    }  # fmt: skip
    asked = Parameters(
        fixed={"fold": np.array(0), "draws": (draws,)}, per_site={"draws": ({"site": np.zeros((3, 2, 1))},)}
    )
    moved = {}
    for least in (0.0, LEAST):
        told = [
            float(eqx.filter_jit(stage.statistics)(asked, capped_rows(least, outcome)).summed["density"][0])
            for outcome in (3.0, 6.0)
        ]
        moved[least] = abs(told[1] - told[0])
    assert moved[LEAST] < 0.05 * moved[0.0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
@pytest.mark.parametrize("make", [up.FedCI, up.CausalRFF])
def test_fits_within_limits_hardly_move_with_a_heavy_persons_outcome(make: Any) -> None:
    settings: dict[str, Any] = {"seed": 1, "draws": 100}
    settings |= (
        {"structure": "projection"} if make is up.FedCI else {"confounding": "observed", "frequencies": 3}
    )
    effects = {
        limits: [make(**settings).fit(STUDY, tables(y), limits=limits).ate() for y in (-1.0, 1.0)]
        for limits in (NONE, Limits())
    }
    assert np.ptp(effects[NONE]) > 0.5
    assert np.ptp(effects[Limits()]) < 0.5 * np.ptp(effects[NONE])
