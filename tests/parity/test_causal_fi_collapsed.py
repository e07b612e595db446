"""A column redrawn from sums alone against rows drawn one by one, and which people it may be redrawn for."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from unpooled.maths.linear_algebra import pack, unpack
from unpooled.methods.causal_fi import collapsed
from unpooled.methods.causal_fi.chain import draw_scale
from unpooled.methods.causal_fi.columns import make_layout, most_incomplete
from unpooled.methods.causal_fi.model import ImputationModel
from unpooled.methods.causal_fi.stages import Augmentation
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import IncompleteColumn, Parameters
from unpooled.protocol.rows import make_rows

pytestmark = pytest.mark.slow
KINDS = {"p": "numeric", "b": "binary", "q": "numeric"}
LAYOUT = make_layout(
    tuple(IncompleteColumn(name, kind, 1) for name, kind in KINDS.items()), np.zeros(3), np.ones(3)
)
X, SIZE, COLUMN, PEOPLE, SITES = 1, 5, 2, 60, 2
POSITION = 1 + X + COLUMN
FOUND = collapsed.Regressions(
    {
        "intercept": np.array([0.2, -0.1]),
        "slopes": np.array([[0.5, 0.3], [-0.2, 0.4]]),  # on x and the binary column
        "covariance": np.array([[1.0, 0.6], [0.6, 1.2]]),
    },
    treatment=np.array([0.1, 0.3, -0.2, 0.4, 0.9]),
    outcome=np.array([[0.3, 0.1, 0.5, -0.4, 1.1], [0.6, -0.2, 0.3, 0.2, 0.7]]),
    offset=np.array([[0.3, -0.2], [-0.5, 0.4]]),
    noise=np.array([0.4, 0.7]),
)


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    h = np.column_stack([np.ones(PEOPLE), rng.standard_normal((PEOPLE, SIZE + 1))])
    return {"h": h, "arm": rng.integers(0, 2, PEOPLE), "site": rng.integers(0, SITES, PEOPLE)}


def sums_of(made: dict[str, np.ndarray]) -> dict[str, Any]:
    flags = np.stack([made["arm"] == a for a in (0, 1)]).astype(float)
    sites = np.stack([made["site"] == s for s in range(SITES)]).astype(float)
    return {
        "redrawn": pack(jnp.asarray(np.einsum("an,nb,nc->abc", flags, made["h"], made["h"]))),
        "redrawn_sites": jnp.asarray(np.einsum("sn,an,nb->sab", sites, flags, made["h"])),
    }


def stacked(one: Any) -> Any:
    """A single chain, with the leading axis of chains."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], one)


def by_rows(made: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw u_j of every person from the normal distribution of (u_p, u_q, w*, y) by textbook conditioning."""
    found: Any = FOUND
    h, drawn, covariance = made["h"].copy(), np.zeros(PEOPLE), found.confounders["covariance"]
    for i, row in enumerate(h):
        arm, site = made["arm"][i], made["site"][i]
        known = np.array([1.0, row[1], row[3]])  # 1, x and the binary column
        mean_u = known @ np.vstack([found.confounders["intercept"], found.confounders["slopes"]])
        on_u = np.array([one[[2, 4]] for one in (found.treatment, found.outcome[arm])])
        on_known = np.array([one[[0, 1, 3]] for one in (found.treatment, found.outcome[arm])])
        mean = np.concatenate([mean_u, on_known @ known + on_u @ mean_u + [0.0, found.offset[site, arm]]])
        loading = np.vstack([np.eye(2), on_u])
        joint = loading @ covariance @ loading.T + np.diag([0.0, 0.0, 1.0, found.noise[arm]])
        seen, values = [0, 2, 3], row[[2, 5, 6]]
        gain = np.linalg.solve(joint[np.ix_(seen, seen)], joint[seen, 1])
        spread = joint[1, 1] - gain @ joint[seen, 1]
        drawn[i] = mean[1] + gain @ (values - mean[seen]) + np.sqrt(spread) * rng.standard_normal()
    h[:, POSITION] = drawn
    return {**made, "h": h}


def test_sums_are_redrawn_as_if_every_person_were() -> None:
    made, count = rows(), 3000
    redrawn = collapsed.redrawn_of(stacked(sums_of(made)), POSITION)
    found, many = (
        jax.tree.map(lambda leaf: np.repeat(leaf, count, axis=0), one) for one in (stacked(FOUND), redrawn)
    )
    drawn = collapsed.redraw(found, many, LAYOUT, POSITION, np.random.default_rng(1))
    products, sites = drawn.products, drawn.sites
    rng = np.random.default_rng(9)
    slow = [sums_of(by_rows(made, rng)) for _ in range(300)]
    slow_products = np.stack([np.asarray(unpack(one["redrawn"])) for one in slow])
    slow_sites = np.stack([np.asarray(one["redrawn_sites"]) for one in slow])
    # The sums that involve u_j agree in distribution, each by itself and in their correlations.
    for fast, plain in (
        (
            products[:, :, POSITION].reshape(count, -1),
            slow_products[:, :, POSITION].reshape(300, -1),
        ),
        (
            sites[:, :, :, POSITION].reshape(count, -1),
            slow_sites[:, :, :, POSITION].reshape(300, -1),
        ),
    ):
        for k in range(fast.shape[1]):
            assert stats.ks_2samp(fast[:, k], plain[:, k]).pvalue > 1e-4
        np.testing.assert_allclose(np.corrcoef(fast.T), np.corrcoef(plain.T), atol=0.2)
    others = np.delete(np.arange(SIZE + 2), POSITION)
    before = redrawn.products[0][:, others][:, :, others]
    np.testing.assert_array_equal(products[0][:, others][:, :, others], before)


def test_sums_over_everybody_move_with_those_redrawn() -> None:
    made = rows()
    inside = made["arm"] * 0 + (np.arange(PEOPLE) % 2 == 0)
    group = {name: one[inside > 0] for name, one in made.items()}
    changed = {**made, "h": made["h"].copy()}
    changed["h"][inside > 0, POSITION] += 1.0

    def everybody(made: dict[str, np.ndarray]) -> dict[str, Any]:
        found = sums_of(made)
        products, sites = np.asarray(unpack(found["redrawn"])), np.asarray(found["redrawn_sites"])
        return {
            "confounders": products[:, :SIZE, :SIZE].sum(axis=0),
            "treatment": products[:, :SIZE, SIZE].sum(axis=0),
            "outcome": products[:, :SIZE, :SIZE], "score": products[:, :SIZE, SIZE + 1],
            "site_cross": sites[:, :, :SIZE],
        }  # fmt: skip

    after = {name: one[inside > 0] for name, one in changed.items()}
    parts = [collapsed.redrawn_of(stacked(sums_of(one)), POSITION) for one in (group, after)]
    found = collapsed.moved(stacked(everybody(made)), *parts)
    for name, expected in everybody(changed).items():
        np.testing.assert_allclose(found[name][0], expected, atol=1e-9)


def test_the_scale_of_latents_is_drawn_from_its_conditional_distribution() -> None:
    rng = np.random.default_rng(3)
    g, variance = np.column_stack([np.ones(40), rng.standard_normal((40, 2))]), 0.7
    latent = g @ [0.2, 1.0, -0.5] + rng.standard_normal(40)
    # Marginally latent ~ N(0, I + g V gᵀ); with the Haar measure the density of c is c^(n−1) exp(−c²Q/2).
    spread = np.eye(40) + g @ np.diag([10.0, variance, variance]) @ g.T
    length = latent @ np.linalg.solve(spread, latent)
    parts = g.T @ g, g.T @ latent, latent @ latent, variance
    many = (np.broadcast_to(part, (4000, *np.shape(part))) for part in parts)
    gram, score, square, spreads = many
    drawn = draw_scale(gram, score, square, spreads, np.random.default_rng(2))
    assert stats.kstest(drawn**2 * length, "chi2", args=(40,)).pvalue > 1e-3


def asked(holes: int, least: float, per_feature: float, column: int = 0, fold: int = -1) -> Statistics:
    """What a site of 80 people per arm sends if the first column is missing for the last `holes` of each."""
    rng, count = np.random.default_rng(6), 160
    u = rng.standard_normal((count, 2))
    w = (np.arange(count) % 2).astype(float)
    u[np.arange(count) // 2 >= 80 - holes, 0] = np.nan
    layout = make_layout(
        tuple(IncompleteColumn(name, "numeric", 1) for name in ("p", "q")), np.zeros(2), np.ones(2)
    )
    stage = Augmentation(ImputationModel(STRUCTURES["linear"], layout, Gaussian()))
    table = make_rows(
        rng.standard_normal((count, 1)), w, rng.standard_normal(count), fold=np.arange(count) % 3, site=0,
        incomplete=u, least=least, per_feature=per_feature,
    )  # fmt: skip
    draw = {
        "confounders": {
            "steps": jnp.zeros((0, 4)), "intercept": jnp.zeros(2), "slopes": jnp.zeros((1, 2)),
            "covariance": jnp.eye(2),
        },
        "treatment": jnp.zeros(4), "outcome": jnp.full((2, 4), 0.1), "bend": jnp.ones(2),
        "noise": jnp.ones(2),
    }  # fmt: skip
    fixed = {"draw": draw, "mode": draw["outcome"], "fold": jnp.asarray(fold), "column": jnp.asarray(column)}
    fixed["key"] = jax.random.key_data(jax.random.key(1))
    offsets = {"offset": jnp.zeros(2), "mode_offset": jnp.zeros(2)}
    return _statistics(stage, Parameters(fixed=fixed, per_site=offsets), table)


_statistics = eqx.filter_jit(lambda stage, question, table: stage.statistics(question, table))


def redrawn(found: Statistics) -> list[float]:
    return np.asarray(found.per_site["redrawn_sites"][:, 0]).tolist()


@pytest.mark.parametrize(
    ("holes", "least", "per_feature", "expected"),
    [
        (70, 0.0, 0.0, 70.0),  # no limits: everybody whose value is missing
        (70, 1.0, 3.0, 62.0),  # six features, so 18 people must be left
        (20, 1.0, 3.0, 20.0),
        (15, 1.0, 3.0, 0.0),  # too few to be sent
        (70, 1.0, 8.0, 0.0),  # 48 in and 48 out are more than there are
    ],
)
def test_those_redrawn_and_those_left_are_enough(
    holes: int, least: float, per_feature: float, expected: float
) -> None:
    assert redrawn(asked(holes, least, per_feature)) == [expected, expected]


def test_no_second_group_and_no_fold_is_sent() -> None:
    assert redrawn(asked(70, 0.0, 0.0, column=1)) == [0.0, 0.0]
    assert redrawn(asked(70, 0.0, 0.0, fold=1)) == [0.0, 0.0]


def test_the_column_with_the_fewest_values_is_chosen_among_the_numbers() -> None:
    assert most_incomplete(LAYOUT, np.array([[30, 2, 20], [30, 2, 35]])) == COLUMN
