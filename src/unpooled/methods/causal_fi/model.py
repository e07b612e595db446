"""p(u | x) p(w | x, u) p(y | w, x, u) beside the rows: completing people, and what to expect of them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.normal import log_probit
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.imputation import (
    CERTAIN,
    Matters,
    OnLine,
    Open,
    S,
    Seen,
    T,
    Ways,
    complete,
    given_index,
    on_numbers,
    open_up,
    shift_of,
)
from unpooled.methods.causal_fi.structures import BendStructure, Parts, predictor
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows

WAYS = 32
"""To fill a person's missing levels, or (where an outcome is not a number) points along s."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
FEW_NODES, FEW_WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
"""Of integrals over a normal index, and over s beside it."""


class Completed(NamedTuple):
    """Everybody's u, what of it treatment and outcome go by, and the latent of the treatment's probit."""

    u: Float[Array, "n u"]
    felt: Float[Array, "n u"]
    latent: Float[Array, " n"]


class ImputationModel(eqx.Module):
    """Everything is under one draw of the parameters, at one site."""

    structure: BendStructure = eqx.field(static=True)
    layout: Layout
    family: ClosedFamily

    def arms(self, draw: Arrays, rows: Rows, u: Array) -> Float[Array, "n 2"]:
        """The predictor of the outcome in either arm."""
        of = partial(predictor, self.structure)
        every = jax.vmap(jax.vmap(of, (0, None, 0)), (None, 0, None))
        return every(draw["outcome"], with_one(rows, u), draw["bend"]) + draw["offset"]

    def own_arm(self, draw: Arrays, rows: Rows, u: Array) -> Float[Array, " n"]:
        arm = rows.treatment.astype(int)
        of = jax.vmap(partial(predictor, self.structure))
        return of(draw["outcome"][arm], with_one(rows, u), draw["bend"][arm]) + draw["offset"][arm]

    def completed(self, draw: Arrays, rows: Rows, key: Array) -> Completed:
        """u given all that is known of a person."""
        for_ways, for_rest = jax.random.split(key)
        arm, shift = rows.treatment.astype(int), shift_of(draw, rows)
        spots = self._spots(jax.random.uniform(for_ways, rows.present.shape))
        open_ = open_up(self.layout, draw["confounders"], rows, spots, shift)
        parts = self._parts(draw["outcome"][arm], rows)
        curve = jax.vmap(self.structure.curve)
        seen = Seen(
            self.family,
            self.family.seen(rows.outcome),
            draw["noise"][arm],
            2.0 * rows.treatment - 1.0,
            lambda index: curve(parts.shape, index, draw["bend"][arm]),
        )
        ways = self._ways(open_, draw, parts, draw["offset"][arm], rows, shift)
        found = complete(ways, seen, for_rest)
        u = open_.u[found.way, jnp.arange(len(arm))]
        u = u + jnp.einsum("nuv,nv->nu", open_.root, found.standard)
        return Completed(u, u if shift is None else u + on_numbers(self.layout, shift), found.latent)

    def expected(
        self, draw: Arrays, rows: Rows, arm: Int[Array, " n"], *, assigned: bool = False
    ) -> Float[Array, " n"]:
        """E[Y(arm) | x, u_seen]; with `assigned`, also given that the person is in that arm."""
        shift = shift_of(draw, rows)
        spots = self._spots(jnp.full(rows.present.shape, 0.5))
        open_ = open_up(self.layout, draw["confounders"], rows, spots, shift)
        parts = self._parts(draw["outcome"][arm], rows)
        ways = self._ways(open_, draw, parts, draw["offset"][arm], rows, shift)
        covariance = jnp.einsum("niu,nju->nij", ways.root, ways.root)
        sd, sign = jnp.sqrt(covariance[:, T, T]), 2.0 * arm - 1.0
        curve = jax.vmap(self.structure.curve)

        def at(mean: Array, node: Array) -> tuple[Array, Array]:
            index = mean[:, T] + sd * node
            line = given_index(Matters(mean, covariance), index)
            bend = curve(parts.shape, index, draw["bend"][arm])
            if not assigned:
                return jnp.zeros_like(index), self.family.mean(line.s + bend, line.s_variance)
            return self._assigned(line, bend, sign)

        logs, said = jax.vmap(jax.vmap(at, (None, 0)), (0, None))(ways.mean, jnp.asarray(NODES))
        logs = logs + jnp.log(jnp.asarray(WEIGHTS))[:, None] + ways.log_weight[:, None]
        return jnp.sum(jax.nn.softmax(logs, axis=(0, 1)) * said, axis=(0, 1))

    def _assigned(self, line: OnLine, bend: Array, sign: Array) -> tuple[Array, Array]:
        """Log chance of the arm, and the outcome to expect of those in it."""
        if isinstance(self.family, Gaussian):
            spread = jnp.sqrt(1.0 + line.p_variance)
            log = log_probit(sign * line.p / spread)
            # s given p on the side of the arm: its mean moves with the mean of a truncated normal.
            hazard = jnp.exp(-0.5 * (line.p / spread) ** 2 - log) / np.sqrt(2.0 * np.pi)
            return log, line.s + bend + sign * line.both / spread * hazard

        def at(node: Array) -> tuple[Array, Array]:
            s = line.s + jnp.sqrt(line.s_variance) * node
            mean, variance = line.probit(s, CERTAIN)
            return log_probit(sign * mean / jnp.sqrt(1.0 + variance)), self.family.mean(s + bend)

        logs, said = jax.vmap(at)(jnp.asarray(FEW_NODES))
        logs = logs + jnp.log(jnp.asarray(FEW_WEIGHTS / FEW_WEIGHTS.sum()))[:, None]
        weight = jax.nn.softmax(logs, axis=0)
        return jax.nn.logsumexp(logs, axis=0), jnp.sum(weight * said, axis=0)

    def _spots(self, within: Float[Array, " n"]) -> Float[Array, "i n"]:
        """One where nothing is to be tried: all columns are numbers, and so is the outcome."""
        one = not self.layout.discrete and isinstance(self.family, Gaussian)
        count = 1 if one else WAYS
        return (jnp.arange(count)[:, None] + within) / count

    def _parts(self, coefficients: Float[Array, "n b"], rows: Rows) -> Parts:
        size = 1 + rows.covariates.shape[1] + rows.incomplete.shape[1]
        return jax.vmap(lambda one: self.structure.parts(one, size))(coefficients)

    def _ways(
        self, open_: Open, draw: Arrays, parts: Parts, offset: Array, rows: Rows, shift: Array | None
    ) -> Ways:
        """How s, t and p follow from u, of everybody."""
        width = rows.incomplete.shape[1]
        treatment = jnp.broadcast_to(draw["treatment"], parts.slopes.shape)
        first = jnp.ones((len(offset), 1))
        slopes = jnp.stack(
            [parts.slopes, jnp.concatenate([0.0 * first, parts.direction], axis=1), treatment], axis=1
        )
        known, on_u = slopes[:, :, : slopes.shape[2] - width], slopes[:, :, slopes.shape[2] - width :]
        mean = jnp.einsum("nkp,np->nk", known, jnp.concatenate([first, rows.covariates], axis=1))
        mean = mean.at[:, S].add(offset)
        if shift is not None:
            mean = mean + jnp.einsum("nku,nu->nk", on_u, on_numbers(self.layout, shift))
        every = mean + jnp.einsum("nku,inu->ink", on_u, open_.u)
        return Ways(every, open_.log_weight, open_.left, jnp.einsum("nku,nuv->nkv", on_u, open_.root))


def with_one(rows: Rows, u: Array) -> Float[Array, "n p"]:
    """g = (1, x, u)."""
    return jnp.concatenate([jnp.ones((len(u), 1)), rows.covariates, u], axis=1)
