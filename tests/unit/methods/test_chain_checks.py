"""Verdicts on chains: cut short they fail, and given time they pass; labels and duplicates do not count."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.errors import FailedCheckWarning
from unpooled.methods.causal_fi import importance
from unpooled.methods.causal_fi.chain import Sizes, begin
from unpooled.methods.causal_fi.columns import make_layout
from unpooled.methods.causal_fi.posterior_sample import Length, monitored
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.methods.causal_rff.classes import gibbs
from unpooled.methods.causal_rff.classes.log_likelihoods import ClassLogLikelihoods
from unpooled.methods.causal_rff.classes.mixture import Counts
from unpooled.models.chain_checks import measure, required_draws
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.records import IncompleteColumn


def walk(sweeps: int, step: float) -> np.ndarray:
    """Chains that forget where they were at the rate `step`, all of variance one."""
    rng = np.random.default_rng(1)
    found = [rng.standard_normal(12)]
    for _ in range(sweeps - 1):
        found.append(np.sqrt(1.0 - step) * found[-1] + np.sqrt(step) * rng.standard_normal(12))
    return np.stack(found)


def test_a_chain_cut_short_fails_and_passes_afterwards() -> None:
    draws = walk(600, step=0.4)
    short, long = (measure({"noise": draws[:many, :, None]}, draws[:many], 200.0) for many in (20, 600))
    assert [check.passed for check in short.checks("most_sweeps")] == [False] * 3
    assert [check.passed for check in long.checks("most_sweeps")] == [True] * 3
    assert not short.mixed and long.mixed
    assert all("most_sweeps" in check.words for check in short.checks("most_sweeps"))
    assert not any("most_sweeps" in check.words for check in long.checks("most_sweeps"))


def test_one_parameter_that_has_not_mixed_fails_whatever_the_average_effect() -> None:
    draws = walk(600, step=0.4)
    many = np.random.default_rng(2).standard_normal((600, 12, 300))
    assert measure({"slopes": many}, draws, 200.0).mixed
    many[:, :3, 7] += 1.5
    found = measure({"slopes": many}, draws, 200.0)
    assert [check.passed for check in found.checks("sweeps")] == [True, True, False]
    assert not found.mixed and found.excess > 1.0


def test_what_is_not_judged_is_shown() -> None:
    draws = walk(600, step=0.4)
    stuck = np.tile(np.arange(12.0), (600, 1))
    found = measure({"latents": stuck}, draws, required_draws(160), unjudged=("latents",))
    assert found.mixed
    assert found.summary()["rhat"]["latents"] > 2.0  # type: ignore[index]
    assert not measure({"latents": stuck}, draws, required_draws(160)).mixed


def test_the_length_keeps_what_is_asked_for_and_then_three_quarters() -> None:
    length = Length(draws=160, sweeps=20, most_sweeps=100)
    assert [length.kept(sweeps) for sweeps in (20, 25, 60, 100)] == [20, 24, 50, 80]
    assert Length(draws=40, sweeps=30, most_sweeps=10).most == 37


def test_coefficients_of_an_arm_that_bends_are_not_monitored() -> None:
    layout = make_layout((IncompleteColumn("u", "numeric", 1),), np.zeros(1), np.ones(1))
    sizes, softplus = Sizes(1, 1, 2), STRUCTURES["softplus"]
    one = begin(sizes, layout, Gaussian())
    wide = jnp.ones((1, 2, len(softplus.groups(sizes.all))))
    state = one._replace(outcome=wide, bend=jnp.array([[0.0, 1.0]]))
    state = state._replace(
        **{name: jnp.asarray(getattr(one, name))[None] for name in ("noise", "offset", "treatment")},
        confounders={name: part[None] for name, part in one.confounders.items()},
    )
    found = monitored([state, state], softplus, sizes)["outcome's coefficients"]
    assert found.shape == (2, 1, 6)
    np.testing.assert_array_equal(found[0, 0], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])


def test_what_is_monitored_of_classes_does_not_depend_on_their_labels() -> None:
    rng = np.random.default_rng(3)
    people, means = rng.integers(1, 9, (1, 2, 2, 3)).astype(float), rng.standard_normal((1, 2, 2, 3))

    def at(order: list[int]) -> dict[str, np.ndarray]:
        none = jnp.zeros(0)
        counts = Counts(jnp.asarray(people[..., order]), *[none] * 6)
        parts = dict.fromkeys(ClassLogLikelihoods._fields, none)
        parts |= {"outcome": jnp.asarray(means[..., order]), "noise": jnp.ones((1, 2))}
        return gibbs.monitored(counts, ClassLogLikelihoods(**parts), binary=False)

    found, swapped = at([0, 1, 2]), at([2, 0, 1])
    for name, value in found.items():
        np.testing.assert_allclose(swapped[name], value, atol=1e-12)
    size = people.sum(axis=2)[0]
    effect = np.sum(size * (means[0, :, 1] - means[0, :, 0])) / size.sum()
    np.testing.assert_allclose(found["average effect"], effect)


def clinics(missing: float = 0.5, people: int = 100) -> dict[str, pd.DataFrame]:
    """One strong confounder, missing for half of the people or more; the effect is 1."""
    rng, frames = np.random.default_rng(5), {}
    for site in ("north", "south"):
        x, u = rng.standard_normal((2, people))
        w = (u + rng.standard_normal(people) > 0.0).astype(int)
        y = w + 2.0 * u + 0.5 * x + rng.standard_normal(people)
        seen = np.where(rng.random(people) < missing, np.nan, u)
        frames[site] = pd.DataFrame({"x": x, "u": seen, "w": w, "y": y})
    return frames


@pytest.mark.slow
def test_a_fit_samples_until_it_has_mixed_and_says_if_it_has_not() -> None:
    study = up.Study(treatment="w", outcome="y", covariates=["x"], incomplete=["u"])
    settings = {"seed": 1, "structure": "linear", "draws": 60, "sweeps": 5}
    with pytest.warns(FailedCheckWarning, match="convergence of parameters"):
        short = up.CausalFI(**settings, most_sweeps=5).fit(study, clinics())
    long = up.CausalFI(**settings, most_sweeps=150).fit(study, clinics())
    verdicts = [model.checks().set_index("name")["passed"].to_dict() for model in (short, long)]
    names = ("convergence", "effective draws", "convergence of parameters")
    # Of five sweeps, one number may look converged by chance (the average effect does with 3 of 8 seeds), but
    # not all parameters do.
    assert not verdicts[0]["convergence of parameters"]
    assert verdicts[1] == dict.fromkeys(names, True)
    assert len(long.ate_draws()) == len(short.ate_draws()) == 60
    lower, upper = long.ate_interval()
    assert lower < 1.0 < upper


@pytest.mark.slow
def test_with_little_observed_importance_sampling_passes_in_few_rounds() -> None:
    study = up.Study(treatment="w", outcome="y", covariates=["x"], incomplete=["u"])
    settings, frames = {"seed": 1, "structure": "linear"}, clinics(0.9, people=200)
    weighted = up.CausalFI(**settings).fit(study, frames)
    taken = weighted.result_.fit_diagnostics["importance"]
    assert all(weighted.checks()["passed"].tolist())
    assert taken["effective_points"] >= importance.FEWEST
    assert len(weighted.result_.rounds) < 70  # 47 if chains mix at once
