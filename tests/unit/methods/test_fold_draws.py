"""Several draws of the folds: how they are combined, and which sums of people follow from them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from unpooled.disclosure.limits import Limits, fewest_in_arm
from unpooled.methods.aipw.fold_draws import combined, median
from unpooled.methods.aipw.group_means import GroupEstimates, outcome_draws, over_fold_draws
from unpooled.methods.aipw.method import METHOD
from unpooled.methods.aipw.model import Estimates
from unpooled.methods.aipw.settings import AIPWContext, AIPWSettings
from unpooled.site.folds import folds, further_folds

# ---------------------------------------------------------------------------------- combined


def test_the_variance_has_the_distance_from_the_median_in_it() -> None:
    """Draws 1, 2 and 5 with errors .1, .2, .3: .01 + 1, .04 + 0, .09 + 9, whose median is 1.01."""
    found = median(Estimates(np.array([1.0, 2.0, 5.0]), np.array([0.1, 0.2, 0.3])))
    assert found.estimate == 2.0
    assert found.error**2 == pytest.approx(1.01)


def test_sites_are_those_of_the_middle_draw_and_add_up() -> None:
    each = Estimates(np.array([[1.0, 4.0], [0.0, 3.0], [9.0, 0.0]]), np.full((3, 2), 0.5))
    people = np.array([30.0, 10.0])  # averages: 1.75, .75, 6.75
    found = combined(each, people)
    np.testing.assert_allclose(found.sites.estimate, [1.0, 4.0])
    assert found.overall.estimate == pytest.approx(1.75)
    # By site .25 + (0, 1, 64) and .25 + (0, 1, 16); of the average .25·(9 + 1)/16 + (0, 1, 25).
    np.testing.assert_allclose(found.sites.error**2, [1.25, 1.25])
    assert found.overall.error**2 == pytest.approx(0.25 * 10 / 16 + 1.0)


def test_what_sites_have_in_common_is_in_their_draws_too() -> None:
    effects = np.array([[1.0, 4.0], [0.0, 3.0], [9.0, 0.0]])
    people = np.array([30.0, 10.0])
    found = combined(Estimates(effects, np.full((3, 2), 0.5)), people)
    covariance = np.broadcast_to(0.25 * np.array([[1.0, -0.6], [-0.6, 1.0]]), (3, 2, 2, 2))
    both = np.stack([effects, 1.0 - effects], axis=-1)  # the effect, and the mean under control
    each = GroupEstimates(both, covariance, np.broadcast_to(people[:, None], (3, 2, 1)))
    outcomes = outcome_draws(over_fold_draws(each), 4000, seed=3)
    drawn = outcomes[:, :, 0, 1] - outcomes[:, :, 0, 0]
    assert np.corrcoef(drawn @ people, outcomes[:, :, 0, 0] @ people)[0, 1] < -0.6
    np.testing.assert_allclose(drawn.mean(axis=0), found.sites.estimate, atol=1e-9)
    np.testing.assert_allclose(drawn.std(axis=0), found.sites.error, rtol=0.02)
    np.testing.assert_allclose((drawn @ people / 40.0).std(), found.overall.error, rtol=0.02)
    assert found.common > 0.0


def test_a_single_draw_is_itself() -> None:
    each = Estimates(np.array([[1.0, 2.0, 4.0]]), np.array([[0.3, 0.2, 0.5]]))
    people = np.array([10.0, 20.0, 30.0])
    found = combined(each, people)
    np.testing.assert_allclose(found.sites, [each.estimate[0], each.error[0]])
    np.testing.assert_allclose(found.overall.error, np.sqrt(np.sum((people / 60 * each.error[0]) ** 2)))
    assert found.common == 0.0


# --------------------------------------------------------------------------------- disclosure


def drawn(seed: int, arms: tuple[int, int], count: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    treatment = rng.permutation(np.repeat([0.0, 1.0], arms))
    first = folds(treatment, count, rng)
    return treatment, further_folds(treatment, first, count, draws, rng)


@pytest.mark.parametrize("seed", range(5))
def test_every_draw_spreads_arms_and_earlier_folds_evenly(seed: int) -> None:
    treatment, found = drawn(seed, (100, 61), 3, 3)
    for arm in (0.0, 1.0):
        here = found[:, treatment == arm]
        for one in here:
            sizes = np.bincount(one, minlength=3)
            assert sizes.max() - sizes.min() <= 1
        for cell in product(range(3), range(3)):
            sizes = np.bincount(here[2, (here[0] == cell[0]) & (here[1] == cell[1])], minlength=3)
            assert sizes.max() - sizes.min() <= 2
    again, other = drawn(seed, (100, 61), 3, 3)[1], drawn(seed + 50, (100, 61), 3, 3)[1]
    assert np.array_equal(found, again)
    assert not np.array_equal(found, other)


@pytest.mark.parametrize("seed", range(20))
def test_no_combination_of_sums_rests_on_few_people_of_the_smallest_arm_that_is_allowed(seed: int) -> None:
    """Adding and subtracting known sums gives a person a(fold 1) + b(fold 2) + c(fold 3) times.

    For weights −1, 0 and 1 of each fold of each draw, the people whom a combination does not cancel.
    """
    smallest = fewest_in_arm(Limits(), 6, 3)
    assert smallest == 60
    treatment, found = drawn(seed, (smallest, smallest), 3, 3)
    here = found[:, treatment == seed % 2]
    weights = np.array(list(product((-1, 0, 1), repeat=3)))
    total = sum(
        weights[:, one].reshape([-1 if axis == place else 1 for axis in range(3)] + [len(one)])
        for place, one in enumerate(here)
    )
    support = np.count_nonzero(total, axis=-1)
    assert support[support > 0].min() >= smallest // 3 > Limits().cell  # a fold of the arm


def test_each_draw_counts_as_features_of_its_own_and_coarser_plans_have_one_draw_or_fold() -> None:
    context, asked = AIPWContext(9, 3, 1.0), AIPWSettings()
    assert [METHOD.features(plan, context) for plan in METHOD.plans(asked)] == [30, 10, 10]
    assert [METHOD.folds(plan) for plan in METHOD.plans(asked)] == [3, 3, 0]
    assert METHOD.features(AIPWSettings(folds=1), context) == 10
    assert METHOD.budget(asked, context)["treatment"] == 8 * 10
    assert METHOD.budget(AIPWSettings(repeats=1), context)["scores"] == 1
    limits = Limits()
    assert [fewest_in_arm(limits, features, folds) for features, folds in ((30, 3), (10, 3), (10, 0))] == [
        270,
        90,
        30,
    ]
