"""A round beside the rows: complete everybody, then sums of what all three models need."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.triangles import pack
from unpooled.methods.causal_fi.completing import (
    Completed,
    Holes,
    Matters,
    Seen,
    T,
    complete,
    given_index,
    holes,
    log_probit,
)
from unpooled.methods.causal_fi.structures import Parts, Structure, predictor
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
"""Of integrals over a normal index."""


class Model(eqx.Module):
    """p(u | x) p(w | x, u) p(y | w, x, u) under one draw of its parameters, at one site."""

    structure: Structure = eqx.field(static=True)

    def arms(self, draw: Tree, rows: Rows, u: Array) -> Float[Array, "n 2"]:
        """The expected outcome in either arm."""
        of = partial(predictor, self.structure)
        every = jax.vmap(jax.vmap(of, (0, None, 0)), (None, 0, None))
        return every(draw["outcome"], with_one(rows, u), draw["bend"]) + draw["offset"]

    def own_arm(self, draw: Tree, rows: Rows, u: Array) -> Float[Array, " n"]:
        arm = rows.treatment.astype(int)
        of = jax.vmap(partial(predictor, self.structure))
        return of(draw["outcome"][arm], with_one(rows, u), draw["bend"][arm]) + draw["offset"][arm]

    def completed(self, draw: Tree, rows: Rows, key: Array) -> Completed:
        """u given all that is known of a person."""
        open_ = holes(draw["confounders"], rows)
        arm = rows.treatment.astype(int)
        parts = self._parts(draw["outcome"][arm], rows)
        curve = jax.vmap(self.structure.curve)
        seen = Seen(
            rows.outcome,
            draw["noise"][arm],
            2.0 * rows.treatment - 1.0,
            lambda index: curve(parts.shape, index, draw["bend"][arm]),
        )
        return complete(open_, self._matters(open_, draw, parts, draw["offset"][arm], rows), seen, key)

    def expected(
        self, draw: Tree, rows: Rows, arm: Int[Array, " n"], *, assigned: bool = False
    ) -> Float[Array, " n"]:
        """E[Y(arm) | x, u_seen]; with `assigned`, also given that the person is in that arm."""
        open_ = holes(draw["confounders"], rows)
        parts = self._parts(draw["outcome"][arm], rows)
        matters = self._matters(open_, draw, parts, draw["offset"][arm], rows)
        sd, sign = jnp.sqrt(matters.covariance[:, T, T]), 2.0 * arm - 1.0
        curve = jax.vmap(self.structure.curve)

        def at(node: Array) -> tuple[Array, Array]:
            index = matters.mean[:, T] + sd * node
            line = given_index(matters, index)
            said = line.s + curve(parts.shape, index, draw["bend"][arm])
            if not assigned:
                return jnp.zeros_like(index), said
            spread = jnp.sqrt(1.0 + line.p_variance)
            log = log_probit(sign * line.p / spread)
            # s given p on the side of the arm: its mean moves with the mean of a truncated normal.
            hazard = jnp.exp(-0.5 * (line.p / spread) ** 2 - log) / np.sqrt(2.0 * np.pi)
            return log, said + sign * line.both / spread * hazard

        logs, said = jax.vmap(at)(jnp.asarray(NODES))
        weight = jax.nn.softmax(logs + jnp.log(jnp.asarray(WEIGHTS))[:, None], axis=0)
        return jnp.sum(weight * said, axis=0)

    def _parts(self, coefficients: Float[Array, "n b"], rows: Rows) -> Parts:
        size = 1 + rows.covariates.shape[1] + rows.incomplete.shape[1]
        return jax.vmap(lambda one: self.structure.parts(one, size))(coefficients)

    def _matters(self, open_: Holes, draw: Tree, parts: Parts, offset: Array, rows: Rows) -> Matters:
        """How s, t and p follow from u, of everybody."""
        width = rows.incomplete.shape[1]
        treatment = jnp.broadcast_to(draw["treatment"], parts.slopes.shape)
        first = jnp.ones((len(offset), 1))
        slopes = jnp.stack(
            [parts.slopes, jnp.concatenate([0.0 * first, parts.direction], axis=1), treatment], axis=1
        )
        known = jnp.concatenate([first, rows.covariates, open_.centre], axis=1)
        mean = jnp.einsum("nkp,np->nk", slopes, known).at[:, 0].add(offset)
        on_u = slopes[:, :, slopes.shape[2] - width :]
        return Matters(mean, jnp.einsum("nku,nuv->nkv", on_u, open_.root))


def with_one(rows: Rows, u: Array) -> Float[Array, "n p"]:
    """g = (1, x, u)."""
    return jnp.concatenate([jnp.ones((len(u), 1)), rows.covariates, u], axis=1)


class Augmenting(Stage):
    """Sums over people completed under one draw; the outcome's about the mode, to first order."""

    model: Model
    reveals: ClassVar[str] = (
        "by arm, over people whose missing confounders are drawn: at this site the number of people, sums of "
        "the outcome and of the outcome model's slopes; summed over sites products of confounders and slopes"
    )

    def statistics(self, parameters: Tree, rows: Rows) -> Tree:
        fixed = parameters["fixed"]
        draw = {**fixed["draw"], "offset": parameters["each"]["offset"]}
        mode = {**draw, "outcome": fixed["mode"], "offset": parameters["each"]["mode_offset"]}
        key = jax.random.fold_in(jax.random.wrap_key_data(fixed["key"]), rows.site)
        u, latent = self.model.completed(draw, rows, key)
        use = rows.present * (rows.fold != fixed["fold"])
        g = with_one(rows, u)
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * use
        arm = rows.treatment.astype(int)
        slope = jax.vmap(jax.grad(partial(predictor, self.model.structure)))
        slopes = slope(mode["outcome"][arm], g, mode["bend"][arm])
        # The outcome as the linearised model sees it: what is left over, and what is linear in the mode.
        linear = jnp.sum(slopes * mode["outcome"][arm], axis=1)
        response = rows.outcome - self.model.own_arm(mode, rows, u) + linear + mode["offset"][arm]
        held = jnp.stack([1.0 - rows.treatment, rows.treatment]) * rows.present * (rows.fold == fixed["fold"])
        # E[y | w, x, u_seen]: what can be said of people whose outcome is not used; often there are none.
        predicted = jax.lax.cond(
            fixed["fold"] < 0,
            lambda: rows.outcome,
            lambda: self.model.expected(mode, rows, arm, assigned=True),
        )
        return {
            "total": {
                "confounders": pack(g.T @ (use[:, None] * g)),
                "treatment": g.T @ (use * latent),
                "outcome": pack(jnp.einsum("an,nb,nc->abc", arms, slopes, slopes)),
                "score": jnp.einsum("an,n,nb->ab", arms, response, slopes),
                "square": arms @ response**2,
                "held_out": held @ (rows.outcome - predicted) ** 2,
                "held": held.sum(axis=1),
            },
            "each": {
                "people": arms.sum(axis=1),
                "site_cross": arms @ slopes,
                "site_score": arms @ response,
            },
        }
