"""One round of data augmentation at a site: impute missing values, then sum for all three models."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from unpooled.disclosure.effective_people import enough, spread_out
from unpooled.maths.linear_algebra import pack
from unpooled.methods.causal_fi.columns import level_sums
from unpooled.methods.causal_fi.imputation import shift_of
from unpooled.methods.causal_fi.model import BOUNDS, ImputationModel, with_one
from unpooled.methods.causal_fi.structures import predictor
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage


class Augmentation(Stage):
    """Sums over imputed rows under one draw; the outcome model is linearised about its mode."""

    model: ImputationModel
    reveals: ClassVar[str] = (
        "by arm, over people whose missing confounders are drawn: at this site the number of people, sums of "
        "the outcome and of the outcome model's slopes; for sums over sites products of confounders, of "
        "slopes, and of confounders with drawn latents of treatment and levels"
    )

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed, own = parameters.fixed, parameters.per_site
        site_terms = {name: own[name] for name in ("offset", "shift") if name in own}
        draw = {**fixed["draw"], **site_terms}
        mode = {**draw, "outcome": fixed["mode"], "offset": own["mode_offset"]}
        key = jax.random.fold_in(jax.random.wrap_key_data(fixed["key"]), rows.salt)
        for_u, for_levels = jax.random.split(key)
        found = self.model.completed(draw, rows, for_u)
        use = rows.present * (rows.fold != fixed["fold"])
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment])
        total = {
            **self._confounders(draw, rows, found.u, use, for_levels),
            **self._treatment(rows, found.shifted, use * found.latent, use, shifted="shift" in site_terms),
            **self._held_out(mode, rows, arms * rows.present * (rows.fold == fixed["fold"]), fixed["fold"]),
        }
        summed, kept = self._outcome(mode, rows, found.shifted, arms * use)
        return Statistics({**total, **summed}, kept)

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
        return {"treatment": g.T @ latent, **own}

    def _outcome(self, mode: Arrays, rows: Rows, u: jax.Array, arms: jax.Array) -> tuple[Arrays, Arrays]:
        """Sums of the linearised outcome regression: working residual plus the linear part at the mode."""
        arm, family = rows.treatment.astype(int), self.model.family
        slope = jax.vmap(jax.grad(partial(predictor, self.model.structure)))
        slopes = slope(mode["outcome"][arm], with_one(rows, u), mode["bend"][arm])
        own, outcome = self.model.own_arm(mode, rows, u), family.seen(rows.outcome)
        working = family.working(outcome, own)
        # Features and arms that rest on few people are left out.
        kept = enough(arms[:, None] * working.weight * slopes.T**2, rows.least)
        arms = arms * enough(arms * working.weight, rows.least)[:, None]
        slopes = slopes * kept[arm]
        response = working.residual + jnp.sum(slopes * mode["outcome"][arm], axis=1) + mode["offset"][arm]
        weights = arms * working.weight
        summed = {
            "outcome": pack(jnp.einsum("an,nb,nc->abc", weights, slopes, slopes)),
            "score": jnp.einsum("an,n,nb->ab", weights, response, slopes),
            "square": weights @ response**2,
            "misfit": arms @ (outcome - family.mean(own)) ** 2,
            "used": arms.sum(axis=1),
        }
        per_site = {
            "people": weights.sum(axis=1),
            "site_cross": weights @ slopes,
            "site_score": weights @ response,
        }
        return summed, per_site

    def _held_out(self, mode: Arrays, rows: Rows, held: jax.Array, fold: jax.Array) -> Arrays:
        """Squared errors of E[y | w, x, u_seen] on held-out people; skipped if no fold is held out."""
        arm, outcome = rows.treatment.astype(int), self.model.family.seen(rows.outcome)
        predicted = jax.lax.cond(
            fold < 0, lambda: outcome, lambda: self.model.expected(mode, rows, arm, assigned=True)
        )
        error = spread_out(outcome - predicted, held.sum(axis=0), rows.least)
        return {"held_out": held @ error**2, "held": held.sum(axis=1)}
