"""The model p(u | x) p(w | x, u) p(y | w, x, u) at a site: imputation and expected outcomes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.normal import latent, log_probit, uniforms
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.imputation import (
    CERTAIN,
    GivenIndex,
    ObservedData,
    Predictors,
    Proposals,
    ProposedRows,
    S,
    T,
    complete,
    given_index,
    log_likelihood,
    on_numbers,
    propose,
    random_numbers,
    shift_of,
)
from unpooled.methods.causal_fi.structures import BendStructure, Parts, predictor
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, FOLD, LINEAR, LOGIT, Bounds

PROPOSALS = 32
"""Number of proposals per person for missing levels and, unless the outcome is Gaussian, for s."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
"""Gauss–Hermite quadrature over t."""
FEW_NODES, FEW_WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
"""Gauss–Hermite quadrature over s given t."""


class Completed(NamedTuple):
    """Imputed confounders, and the latent variable of the treatment's probit."""

    u: Float[Array, "n u"]
    """Values as if missing at random."""
    shifted: Float[Array, "n u"]
    """Values with the sensitivity shift added, which treatment and outcome depend on."""
    latent: Float[Array, " n"]


BOUNDS: Bounds = {
    **{name: LINEAR for name in ("outcome", "mode", "offset", "mode_offset", "intercept", "slopes", "shift")},
    **{name: LOGIT for name in ("treatment", "steps")},
    "covariance": (-100.0, 100.0),
    "noise": (1e-6, 100.0),
    "bend": (-1.0, 1.0),
    "fold": FOLD,
    "column": (0.0, 10_000.0),
    "key": ANY,
}
"""Bounds of all parameters of a chain."""


class ImputationModel(eqx.Module):
    """All methods are evaluated under one draw of the parameters, at one site."""

    structure: BendStructure = eqx.field(static=True)
    layout: Layout
    family: ClosedFamily

    @property
    def linear(self) -> bool:
        """Whether the outcome is linear in both arms."""
        return self.structure.name == "linear"

    def arms(self, draw: Arrays, rows: Rows, u: Array) -> Float[Array, "n 2"]:
        """The predictor of the outcome in both arms."""
        of = partial(predictor, self.structure)
        every = jax.vmap(jax.vmap(of, (0, None, 0)), (None, 0, None))
        return every(draw["outcome"], with_one(rows, u), draw["bend"]) + draw["offset"]

    def own_arm(self, draw: Arrays, rows: Rows, u: Array) -> Float[Array, " n"]:
        """The predictor of the outcome in each person's own arm."""
        arm = rows.treatment.astype(int)
        of = jax.vmap(partial(predictor, self.structure))
        return of(draw["outcome"][arm], with_one(rows, u), draw["bend"][arm]) + draw["offset"][arm]

    def completed(self, draw: Arrays, rows: Rows, key: Array) -> Completed:
        """Draw u given all that is observed of a person; only people with missing values are imputed."""
        if rows.gaps is None:
            return self._imputed(draw, rows, uniforms(key, len(rows.present), self._random_numbers))
        size = len(rows.gaps) * self._random_numbers
        uniform = uniforms(key, size + len(rows.present))
        index = with_one(rows, rows.incomplete) @ draw["treatment"]
        found = latent(index, jnp.ones_like(index), rows.treatment > 0.0, uniform[size:])
        imputed = self._imputed(draw, rows.with_gaps(), uniform[:size].reshape(-1, self._random_numbers))
        complete = Completed(rows.incomplete, rows.incomplete, found)
        return jax.tree.map(lambda all_, some: all_.at[rows.gaps].set(some, mode="drop"), complete, imputed)

    @property
    def _random_numbers(self) -> int:
        return random_numbers(len(self.layout.numbers))

    def _imputed(self, draw: Arrays, rows: Rows, uniform: Float[Array, "n r"]) -> Completed:
        """Draw u of people who may all have missing values."""
        arm, shift = rows.treatment.astype(int), shift_of(draw, rows)
        proposed = propose(self.layout, draw["confounders"], rows, self._strata(uniform[:, 0]), shift)
        parts = self._parts(draw["outcome"][arm], rows)
        observed = self._observed(draw, parts, rows)
        proposals = self._proposals(proposed, draw, parts, draw["offset"][arm], rows, shift)
        found = complete(proposals, observed, uniform[:, 1:])
        u = proposed.u[found.proposal, jnp.arange(len(arm))]
        u = u + jnp.einsum("nuv,nv->nu", proposed.root, found.standard)
        return Completed(u, u if shift is None else u + on_numbers(self.layout, shift), found.latent)

    def log_likelihood(self, draw: Arrays, rows: Rows) -> Float[Array, " n"]:
        """Log likelihood of all that is observed of a person, without its constant.

        Only for linear arms with Gaussian outcomes, and if all incomplete columns are numbers.
        """
        arm, numbers = rows.treatment.astype(int), self.layout.numbers
        confounders = draw["confounders"]
        proposed = propose(self.layout, confounders, rows, jnp.full((1, len(arm)), 0.5), None)
        # |S| is the determinant of the observed block times that of the missing block given it.
        pivots = jnp.diagonal(proposed.root[:, numbers], axis1=1, axis2=2)
        missing = jnp.sum(jnp.log(jnp.where(rows.seen[:, numbers] > 0.0, 1.0, pivots)), axis=1)
        whole = 0.5 * jnp.linalg.slogdet(confounders["covariance"])[1]
        proposed = proposed._replace(log_weight=proposed.log_weight + missing - whole)
        parts = self._parts(draw["outcome"][arm], rows)
        proposals = self._proposals(proposed, draw, parts, draw["offset"][arm], rows, None)
        return log_likelihood(proposals, self._observed(draw, parts, rows))

    def expected(
        self, draw: Arrays, rows: Rows, arm: Int[Array, " n"], *, assigned: bool = False
    ) -> Float[Array, " n"]:
        """E[Y(arm) | x, u_seen]; with `assigned`, also conditional on the person being in that arm."""
        if rows.gaps is None:
            return self._expected(draw, rows, arm, assigned=assigned)
        # Somebody whose values are all known has one outcome to expect, whatever the arm they are in.
        both = self.family.mean(self.arms(draw, rows, rows.incomplete))
        complete = jnp.where(arm > 0, both[:, 1], both[:, 0])
        imputed = self._expected(draw, rows.with_gaps(), arm[rows.gaps], assigned=assigned)
        return complete.at[rows.gaps].set(imputed, mode="drop")

    def _expected(
        self, draw: Arrays, rows: Rows, arm: Int[Array, " n"], *, assigned: bool
    ) -> Float[Array, " n"]:
        """The same for people who may all have missing values, by quadrature over t."""
        shift = shift_of(draw, rows)
        strata = self._strata(jnp.full(rows.present.shape, 0.5))
        proposed = propose(self.layout, draw["confounders"], rows, strata, shift)
        parts = self._parts(draw["outcome"][arm], rows)
        proposals = self._proposals(proposed, draw, parts, draw["offset"][arm], rows, shift)
        covariance = jnp.einsum("niu,nju->nij", proposals.root, proposals.root)
        sd, sign = jnp.sqrt(covariance[:, T, T]), 2.0 * arm - 1.0
        curve = jax.vmap(self.structure.curve)

        def at(mean: Array, node: Array) -> tuple[Array, Array]:
            index = mean[:, T] + sd * node
            line = given_index(Predictors(mean, covariance), index)
            bend = curve(parts.shape, index, draw["bend"][arm])
            if not assigned:
                return jnp.zeros_like(index), self.family.mean(line.s + bend, line.s_variance)
            return self._assigned(line, bend, sign)

        logs, expected = jax.vmap(jax.vmap(at, (None, 0)), (0, None))(proposals.mean, jnp.asarray(NODES))
        logs = logs + jnp.log(jnp.asarray(WEIGHTS))[:, None] + proposals.log_weight[:, None]
        return jnp.sum(jax.nn.softmax(logs, axis=(0, 1)) * expected, axis=(0, 1))

    def _assigned(self, line: GivenIndex, bend: Array, sign: Array) -> tuple[Array, Array]:
        """Log probability of the arm, and the expected outcome of people in it."""
        if isinstance(self.family, Gaussian):
            spread = jnp.sqrt(1.0 + line.p_variance)
            log = log_probit(sign * line.p / spread)
            # The mean of s given the sign of the latent variable, which is a truncated normal.
            hazard = jnp.exp(-0.5 * (line.p / spread) ** 2 - log) / np.sqrt(2.0 * np.pi)
            return log, line.s + bend + sign * line.both / spread * hazard

        def at(node: Array) -> tuple[Array, Array]:
            s = line.s + jnp.sqrt(line.s_variance) * node
            mean, variance = line.probit(s, CERTAIN)
            return log_probit(sign * mean / jnp.sqrt(1.0 + variance)), self.family.mean(s + bend)

        logs, expected = jax.vmap(at)(jnp.asarray(FEW_NODES))
        logs = logs + jnp.log(jnp.asarray(FEW_WEIGHTS / FEW_WEIGHTS.sum()))[:, None]
        weight = jax.nn.softmax(logs, axis=0)
        return jax.nn.logsumexp(logs, axis=0), jnp.sum(weight * expected, axis=0)

    def _observed(self, draw: Arrays, parts: Parts, rows: Rows) -> ObservedData:
        """Outcome and treatment of every person, and the nonlinear part of their own arm."""
        arm, curve = rows.treatment.astype(int), jax.vmap(self.structure.curve)
        return ObservedData(
            self.family,
            self.family.seen(rows.outcome),
            draw["noise"][arm],
            2.0 * rows.treatment - 1.0,
            None if self.linear else lambda index: curve(parts.shape, index, draw["bend"][arm]),
        )

    def _strata(self, within: Float[Array, " n"]) -> Float[Array, "i n"]:
        """Stratified uniform numbers, one per proposal; a single one if everything is Gaussian."""
        one = not self.layout.discrete and isinstance(self.family, Gaussian)
        count = 1 if one else PROPOSALS
        return (jnp.arange(count)[:, None] + within) / count

    def _parts(self, coefficients: Float[Array, "n b"], rows: Rows) -> Parts:
        size = 1 + rows.covariates.shape[1] + rows.incomplete.shape[1]
        return jax.vmap(lambda one: self.structure.parts(one, size))(coefficients)

    def _proposals(
        self,
        proposed: ProposedRows,
        draw: Arrays,
        parts: Parts,
        offset: Array,
        rows: Rows,
        shift: Array | None,
    ) -> Proposals:
        """The distribution of (s, t, p) under each proposal for u."""
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
        every = mean + jnp.einsum("nku,inu->ink", on_u, proposed.u)
        return Proposals(
            every, proposed.log_weight, proposed.left, jnp.einsum("nku,nuv->nkv", on_u, proposed.root)
        )


def with_one(rows: Rows, u: Array) -> Float[Array, "n p"]:
    """g = (1, x, u)."""
    return jnp.concatenate([jnp.ones((len(u), 1)), rows.covariates, u], axis=1)
