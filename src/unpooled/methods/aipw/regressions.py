"""What the treatment's and the outcome's regressions need of a site's rows: Gram matrices and scores."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.linear_algebra import pack
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class Treatment(Stage):
    """A Newton step of the logistic regression of the treatment, without the people of one fold."""

    offsets: bool = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "for sums over sites: slope and curvature of the treatment's log likelihood, without each fold; "
        "where sites have offsets, at this site: its slope and curvature in the intercept"
    )

    def statistics(self, parameters: Tree, rows: Rows) -> Tree:
        return _shared(treatment_sums(parameters, rows), self.offsets)


class Outcome(Stage):
    """Linear regressions of the outcome by arm, without the people of one fold."""

    offsets: bool = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "for sums over sites: products of the covariates and the outcome by arm, without each fold; where "
        "sites have offsets, at this site: sums of the covariates and of the outcome by arm"
    )

    def statistics(self, parameters: Tree, rows: Rows) -> Tree:
        return _shared(outcome_sums(parameters, rows), self.offsets)


def features(covariates: Array) -> Float[Array, "n f"]:
    """An intercept, and the covariates."""
    return jnp.concatenate([jnp.ones((len(covariates), 1)), covariates], axis=1)


def treatment_sums(parameters: Tree, rows: Rows) -> dict[str, Array]:
    """The log likelihood, its slope and its curvature at a site's coefficients; the first axis is of one."""
    design, use = features(rows.covariates), _in_use(parameters, rows)
    logit = design @ parameters["each"]["treatment"]
    chance = jax.nn.sigmoid(logit)
    gram = jnp.einsum("n,nf,ng->fg", use * chance * (1.0 - chance), design, design)
    likelihood = use @ jax.nn.log_sigmoid(jnp.where(rows.treatment > 0.0, logit, -logit))
    score = (use * (rows.treatment - chance)) @ design
    return {"gram": gram[None], "score": score[None], "likelihood": likelihood[None]}


def outcome_sums(parameters: Tree, rows: Rows) -> dict[str, Array]:
    """By arm: products of the features with each other and with the outcome, and how many people."""
    design = features(rows.covariates)
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * _in_use(parameters, rows)
    return {
        "gram": jnp.einsum("an,nf,ng->afg", arms, design, design),
        "score": jnp.einsum("an,n,nf->af", arms, rows.outcome, design),
        "square": arms @ rows.outcome**2,
        "people": arms.sum(axis=1),
    }


def packed(sums: dict[str, Array]) -> dict[str, Array]:
    """As they travel: a symmetric matrix by its lower triangle."""
    return {**sums, "gram": pack(sums["gram"])}


def _shared(sums: dict[str, Array], offsets: bool) -> Tree:
    """Sums over sites suffice, but for the sums that a site's own intercept rests on."""
    own = {"gram_row": sums["gram"][:, 0], "score_start": sums["score"][:, 0]} if offsets else {}
    return {"total": packed(sums), "each": own}


def _in_use(parameters: Tree, rows: Rows) -> Float[Array, " n"]:
    return rows.present * (rows.fold != parameters["fixed"]["without"])
