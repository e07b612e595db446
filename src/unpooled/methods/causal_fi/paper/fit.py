"""The variational fit as a procedure: Algorithm 1 for both stages, then Algorithms 2 and 3 under draws
from q."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unpooled.disclosure.by_site import Trace
from unpooled.methods.causal_fi.paper import mean_field
from unpooled.methods.causal_fi.paper.effects import NetworkAveragedOutcomes, conditional, individual
from unpooled.methods.causal_fi.paper.model import NetworkModel, make_model, starts
from unpooled.methods.causal_fi.paper.stages import ImputationBound, SurrogateBound
from unpooled.methods.causal_fi.settings import CausalFIContext, CausalFISettings
from unpooled.methods.expected import Course, Expected, keys
from unpooled.methods.method import Fit
from unpooled.models.effects import BOOTSTRAP, AverageOfOutcomes, average_outcomes
from unpooled.optimise.objective import Minima
from unpooled.optimise.procedure import Procedure, ask
from unpooled.optimise.stochastic import stochastic, usual_rounds
from unpooled.protocol.records import Arrays, Draws, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage

IMPUTATION, SURROGATES, EFFECT = "variational/imputation", "variational/surrogates", "variational/effect"
"""Names of the stages."""


def stages(settings: CausalFISettings, context: CausalFIContext) -> dict[str, Stage]:
    """The stages of both bounds and of the average effects."""
    model = make_model(context)
    return {
        IMPUTATION: ImputationBound(model, settings.monte_carlo),
        SURROGATES: SurrogateBound(model, settings.monte_carlo),
        EFFECT: AverageOfOutcomes(NetworkAveragedOutcomes(model, settings.averaged == "completed")),
    }


def features(settings: CausalFISettings, context: CausalFIContext) -> int:
    """The number of parameters, each of which has a gradient that is sent."""
    found = starts(make_model(context), settings, context, seed=0)
    return sum(np.size(leaf) for leaf in jax.tree.leaves(found))


def most_rounds(settings: CausalFISettings) -> int:
    return 2 * settings.rounds + 1


def budget(settings: CausalFISettings) -> dict[str, int]:
    """The number of θ for which each stage is asked at most."""
    return {IMPUTATION: settings.rounds, SURROGATES: settings.rounds, EFFECT: settings.draws}


def expected(settings: CausalFISettings, context: CausalFIContext) -> Course:
    """The course of `fit`: the usual number of rounds of both stages, then effects under every draw."""
    model = make_model(context)
    initial, rounds = starts(model, settings, context, seed=0), usual_rounds(settings.rounds)
    imputation, both = (
        initial.imputation,
        jax.eval_shape(mean_field.draw, initial.surrogates, jax.random.key(0)),
    )
    second = Parameters(initial.surrogates, {"key": keys(), "imputation": imputation})
    questions = [Expected(SURROGATES, rounds, second, rounds, gradient=True)]
    drawn = {**both, "imputation": jax.eval_shape(mean_field.draw, imputation, jax.random.key(0))}
    if model.entries.layout.columns:
        first = Parameters(imputation, {"key": keys()})
        questions.append(Expected(IMPUTATION, rounds, first, rounds, gradient=True))
    given = "imputation" if settings.averaged == "completed" else "confounders"
    sent = {name: drawn[name] for name in (given, "outcome")}
    effect = Expected(EFFECT, settings.draws, Parameters(fixed={**sent, BOOTSTRAP: keys()}))
    return Course(len(questions) * rounds + 1, (*questions, effect))


def fit(settings: CausalFISettings, context: CausalFIContext, seed: int) -> Procedure[Fit]:
    """Stage 1 if any column is incomplete, stage 2, draws of all weights, and the sites' average effects."""
    model = make_model(context)
    initial = starts(model, settings, context, seed)
    minimise = partial(stochastic, rounds=settings.rounds, rate=settings.learning_rate)
    bounds: dict[str, Minima] = {}
    imputation = initial.imputation
    if model.entries.layout.columns:
        bound = ImputationBound(model, settings.monte_carlo)
        bounds[IMPUTATION] = yield from minimise(IMPUTATION, bound, imputation, seed)
        imputation = _only(bounds[IMPUTATION].free)
    fixed = {"imputation": jax.tree.map(lambda leaf: np.asarray(leaf)[None], imputation)}
    bound = SurrogateBound(model, settings.monte_carlo)
    bounds[SURROGATES] = yield from minimise(SURROGATES, bound, initial.surrogates, seed, fixed=fixed)
    key = jax.random.fold_in(jax.random.key(seed), settings.rounds)
    drawn = _draw(imputation, _only(bounds[SURROGATES].free), jax.random.split(key, settings.draws))
    fixed = jax.tree.map(np.asarray, drawn)
    given = "imputation" if settings.averaged == "completed" else "confounders"
    sent = {name: fixed[name] for name in (given, "outcome")}
    reply = yield from ask(EFFECT, Parameters(fixed={**sent, BOOTSTRAP: fixed["key"]}))
    diagnostics = {"bounds": {name: _diagnostics(found) for name, found in bounds.items()}}
    return Fit(Draws(fixed), average_outcomes(reply.per_site), diagnostics)


def _only(batch: Arrays) -> Arrays:
    """The single θ of a batch of size one."""
    return jax.tree.map(lambda leaf: leaf[0], batch)


@jax.jit
def _draw(imputation: Arrays, surrogates: Arrays, keys: Array) -> Arrays:
    """Draw θ of all three networks for each key, together with a new key for later draws."""

    def one(key: Array) -> Arrays:
        for_first, for_both, rest = jax.random.split(key, 3)
        both = mean_field.draw(surrogates, for_both)
        return {
            **both,
            "imputation": mean_field.draw(imputation, for_first),
            "key": jax.random.key_data(rest),
        }

    return jax.lax.map(one, keys)


def _diagnostics(found: Minima) -> Arrays:
    return {
        "objective": float(found.values[0]),
        "rounds": found.evaluations,
        "history": Trace(found.history),
    }


def conditional_effects(
    settings: CausalFISettings, context: CausalFIContext, draws: Draws, rows: Rows, people: Rows
) -> np.ndarray:
    """CATE draws [K, people] given x and the observed part of u, for any missingness pattern."""
    model, known = _at(context, draws, people)
    return conditional(model, known, people, settings.imputations if model.entries.layout.columns else 1)


def individual_effects(
    settings: CausalFISettings, context: CausalFIContext, draws: Draws, rows: Rows, people: Rows | None
) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], given the person's own treatment and outcome."""
    asked = rows if people is None else people
    model, known = _at(context, draws, asked)
    return individual(model, known, asked, settings.noise_correlation)


def _at(context: CausalFIContext, draws: Draws, people: Rows) -> tuple[NetworkModel, Arrays]:
    """The model, and the draws available to the site of these people."""
    known = draws.at(int(people.site))
    return make_model(context), jax.tree.map(jnp.asarray, known)
