"""One round of data augmentation at a site: impute missing values, then sum for all three models."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from unpooled.disclosure.effective_people import effective_people, enough, spread_out
from unpooled.disclosure.limits import FOLD_CELLS
from unpooled.maths.linear_algebra import pack, weighted_gram
from unpooled.methods.causal_fi.columns import level_sums
from unpooled.methods.causal_fi.imputation import shift_of
from unpooled.methods.causal_fi.model import BOUNDS, Completed, ImputationModel, with_one
from unpooled.methods.causal_fi.structures import predictor
from unpooled.models.dispersion import log_densities
from unpooled.models.outcome_family import NegativeBinomial
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

LINEAR_ARMS = (
    "intercept", "slopes", "covariance", "steps", "treatment", "outcome", "noise", "offset",
)  # fmt: skip
"""Parameters of the likelihood of linear arms."""
WITHHELD = -1e12
"""Sent instead of a log likelihood that rests on few people; such parameters are as good as impossible."""


class Augmentation(Stage):
    """Sums over imputed rows under one draw; the outcome model is linearised about its mode."""

    model: ImputationModel
    reveals: ClassVar[str] = (
        "by arm, over people whose missing confounders are drawn: at this site the number of people, sums of "
        "the outcome and of the outcome model's slopes; for sums over sites products of confounders, of "
        "slopes, and of confounders with drawn latents of treatment and levels; the same of the people whose "
        "value of the most incomplete numeric confounder is missing, if they and the others are many; of "
        "counts their log densities at given dispersions"
    )

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed, own = parameters.fixed, parameters.per_site
        site_terms = {name: own[name] for name in ("offset", "shift") if name in own}
        draw = {**fixed["draw"], **site_terms}
        mode = {**draw, "outcome": fixed["mode"], "offset": own["mode_offset"]}
        key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
        for_u, for_levels = jax.random.split(key)
        found = self.model.completed(draw, rows, for_u)
        use = rows.present * (rows.fold != fixed["fold"])
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment])
        total = {
            **self._confounders(draw, rows, found.u, use, for_levels),
            **self._treatment(rows, found.shifted, use * found.latent, use, shifted="shift" in site_terms),
            **self._held_out(mode, rows, arms * rows.present * (rows.fold == fixed["fold"]), fixed["fold"]),
        }
        summed, per_site, full = self._outcome(mode, rows, found.shifted, arms * use)
        total |= self._dispersion(draw, rows, found.shifted, arms * use)
        if "column" in fixed:
            straight = full * self._straight(draw) * (fixed["fold"] < 0)
            own, at_site = self._redrawn(rows, fixed["column"], found, straight)
            summed, per_site = summed | own, per_site | at_site
        return Statistics({**total, **summed}, per_site)

    def _straight(self, draw: Arrays) -> jax.Array:
        """Which arms are linear: all if the structure is, else those without a bend."""
        return jnp.ones(2) if self.model.linear else (draw["bend"] == 0.0).astype(float)

    def _redrawn(
        self, rows: Rows, column: jax.Array, found: Completed, straight: jax.Array
    ) -> tuple[Arrays, Arrays]:
        """Products of h = (g, w*, y) over people whose value of the column may be redrawn from sums.

        The group is fixed by the rows alone: people of an arm whose value is missing, less some of them if
        those who remain would be too few. It is empty unless both are large enough for the number of
        features, and unless the column is the site's own most incomplete one, so that the sums of two groups
        are never compared.
        """
        h = jnp.concatenate([with_one(rows, found.u), found.latent[:, None], rows.outcome[:, None]], axis=1)
        arms = rows.present * jnp.stack([1.0 - rows.treatment, rows.treatment])
        numbers = self.model.layout.numbers
        holes = rows.present @ (1.0 - rows.seen[:, numbers])
        group = arms * (1.0 - rows.seen[:, column])
        fewest = jnp.maximum(FOLD_CELLS * rows.least, h.shape[1] * rows.per_feature)
        spared = jnp.maximum(fewest - (arms.sum(axis=1) - group.sum(axis=1)), 0.0)
        group = group * (jnp.cumsum(group, axis=1) > spared[:, None])
        contributions = jnp.stack([group, arms - group], axis=1)[:, :, None] * h.T**2
        allowed = jnp.all(enough(contributions, rows.least) == 1.0, axis=(1, 2))
        allowed &= (group.sum(axis=1) >= fewest) & (jnp.asarray(numbers)[jnp.argmax(holes)] == column)
        group = group * (allowed * straight)[:, None]
        products = pack(weighted_gram(group, h))
        return {"redrawn": products}, {"redrawn_sites": group @ h}

    def _confounders(self, draw: Arrays, rows: Rows, u: jax.Array, use: jax.Array, key: jax.Array) -> Arrays:
        """Products of (1, x, u), and the sums of the regressions of the levels."""
        g, steps = with_one(rows, u), draw["confounders"]["steps"]
        filled = eqx.tree_at(lambda rows: rows.incomplete, rows, u)
        sums = level_sums(self.model.layout, steps, filled, use, shift_of(draw, rows), key)
        return {"confounders": pack(g.T @ (use[:, None] * g)), "steps": sums}

    def _treatment(
        self, rows: Rows, u: jax.Array, latent: jax.Array, use: jax.Array, *, shifted: bool
    ) -> Arrays:
        """Sums of the treatment's probit; without shifts its products equal those of the confounders."""
        g = with_one(rows, u)
        own = {"treatment_products": pack(g.T @ (use[:, None] * g))} if shifted else {}
        return {"treatment": g.T @ latent, "treatment_square": jnp.sum(latent**2), **own}

    def _outcome(
        self, mode: Arrays, rows: Rows, u: jax.Array, arms: jax.Array
    ) -> tuple[Arrays, Arrays, jax.Array]:
        """Sums of the linearised outcome regression: working residual plus the linear part at the mode.

        Also returns which arms are whole, without anything left out.
        """
        arm, family = rows.treatment.astype(int), self.model.family
        slope = jax.vmap(jax.grad(partial(predictor, self.model.structure)))
        slopes = slope(mode["outcome"][arm], with_one(rows, u), mode["bend"][arm])
        own, outcome = self.model.own_arm(mode, rows, u), family.seen(rows.outcome)
        working = family.working(outcome, own, mode["noise"][arm])
        # Features and arms that rest on few people are left out.
        kept = enough(arms[:, None] * working.weight * slopes.T**2, rows.least)
        whole = enough(arms * working.weight, rows.least)
        arms = arms * whole[:, None]
        slopes = slopes * kept[arm]
        response = working.residual + jnp.sum(slopes * mode["outcome"][arm], axis=1) + mode["offset"][arm]
        weights = arms * working.weight
        summed = {
            "outcome": pack(weighted_gram(weights, slopes)),
            "score": (weights * response) @ slopes,
            "square": weights @ response**2,
            "misfit": arms @ (outcome - family.mean(own)) ** 2,
            "used": arms.sum(axis=1),
        }
        per_site = {
            "people": weights.sum(axis=1),
            "site_cross": weights @ slopes,
            "site_score": weights @ response,
        }
        size = with_one(rows, u).shape[1]
        return summed, per_site, (whole == 1.0) * jnp.all(kept[:, :size] == 1.0, axis=1)

    def _dispersion(self, draw: Arrays, rows: Rows, u: jax.Array, arms: jax.Array) -> Arrays:
        """Log densities of counts at a grid of dispersions; empty for other outcomes."""
        family = self.model.family
        if not isinstance(family, NegativeBinomial):
            return {}
        own, outcome = self.model.own_arm(draw, rows, u), family.seen(rows.outcome)
        arms = arms * enough(arms, rows.least)[:, None]
        return {"dispersion": log_densities(family, outcome, own, arms, rows.least)}

    def _held_out(self, mode: Arrays, rows: Rows, held: jax.Array, fold: jax.Array) -> Arrays:
        """Squared errors of E[y | w, x, u_seen] on held-out people; skipped if no fold is held out."""
        arm, outcome = rows.treatment.astype(int), self.model.family.seen(rows.outcome)
        predicted = jax.lax.cond(
            fold < 0, lambda: outcome, lambda: self.model.expected(mode, rows, arm, assigned=True)
        )
        error = spread_out(outcome - predicted, held.sum(axis=0), rows.least)
        return {"held_out": held @ error**2, "held": held.sum(axis=1)}


class ObservedLikelihood(Stage):
    """The log likelihood of what is observed under one draw, with nothing imputed; for linear arms."""

    model: ImputationModel
    reveals: ClassVar[str] = (
        "the log likelihood of the site's observed confounders, treatments and outcomes under each of some "
        "thousand parameters, summed over its people; nothing where few people stand out from the others"
    )

    def bounds(self) -> Bounds:
        return {name: BOUNDS[name] for name in LINEAR_ARMS}

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        draw = {**parameters.fixed, **parameters.per_site, "bend": jnp.ones(2)}
        logs = self.model.log_likelihood(draw, rows)
        centre = jnp.nanmedian(jnp.where(rows.present > 0.0, logs, jnp.nan))
        many = effective_people(rows.present * jnp.abs(logs - centre)) > rows.least
        return Statistics({"log_likelihood": jnp.where(many, rows.present @ logs, WITHHELD)})
