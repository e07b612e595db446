"""The candidate with a Gaussian latent confounder, as in the paper: Algorithm 1, then one round of sums."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.disclosure.by_site import BySite, Trace
from unpooled.maths.fourier import frequencies
from unpooled.maths.streams import stream, stream_key
from unpooled.methods.causal_rff.classes.log_likelihoods import ColumnKinds
from unpooled.methods.causal_rff.fit import CandidateFit
from unpooled.methods.causal_rff.paper import posterior
from unpooled.methods.causal_rff.paper.bound import LatentBound, start
from unpooled.methods.causal_rff.paper.effects import GaussianModel
from unpooled.methods.causal_rff.paper.functions import MODELS, StructuralFunctions
from unpooled.methods.causal_rff.paper.posterior import LatentSampler
from unpooled.methods.causal_rff.settings import CausalRFFContext, CausalRFFSettings
from unpooled.models.outcome_family import Family
from unpooled.optimise.objective import Minima
from unpooled.optimise.procedure import Procedure, ask
from unpooled.optimise.stochastic import stochastic
from unpooled.protocol.records import Arrays, Draws, Parameters
from unpooled.protocol.stage import Stage

SETS = 10
"""Number of imputations of everybody's z; each contributes an equal share of the draws."""
FOLD_DRAWS = 20
"""Draws of the decoders for the held-out density of a fold, from one imputation of z."""


class GaussianCandidate(NamedTuple):
    """See `unpooled.methods.causal_rff.fit.Candidate`."""

    bound: LatentBound
    sites: int
    rounds: int
    rate: float
    draws: int
    seed: int

    def learn(self, folds: int) -> Procedure[Minima]:
        """Fit to all people and without each fold, in lockstep."""
        initial = start(self.bound.functions, self.sites, self.seed)
        fixed = {"fold": np.arange(-1, folds)}
        return stochastic(
            "gaussian", self.bound, initial, self.seed, rounds=self.rounds, rate=self.rate, fixed=fixed
        )

    def sample(self, learned: Minima, folds: int) -> Procedure[CandidateFit]:
        """One round of sums: over several imputations of z for the full fit, over one for each other fit."""
        model = np.concatenate([np.zeros(SETS, int), np.arange(1, folds + 1)])
        keys = np.asarray(jax.random.key_data(jax.random.split(self._key(0), len(model))))
        points = jax.tree.map(lambda leaf: np.asarray(leaf)[model], learned.free)
        fixed = {"point": points, "fold": model - 1, "key": keys}
        reply = yield from ask("gaussian/moments", Parameters(fixed=fixed))
        rng = stream(self.seed, "decoder draws")
        shares = [len(part) for part in np.array_split(np.arange(self.draws), SETS)]
        counts = [*shares, *[FOLD_DRAWS] * folds]
        drawn = [self._drawn(points, reply.per_site, index, count, rng) for index, count in enumerate(counts)]
        full = self._bundle(learned.free, 0, np.concatenate(drawn[:SETS]))
        without = [self._bundle(learned.free, fold + 1, each) for fold, each in enumerate(drawn[SETS:])]
        held = jax.tree.map(lambda *leaves: np.stack(leaves), *without) if without else None
        accepted = float((reply.summed["accepted"] / reply.summed["people"])[:SETS].mean())
        return CandidateFit(full, held, self._diagnostics(learned, accepted))

    def _drawn(
        self, points: Arrays, sums: Arrays, index: int, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Draws of the outcome decoders from one batch entry."""
        free, moments = jax.tree.map(lambda leaf: leaf[index], (points, sums))
        functions = self.bound.functions
        zeta = float(self.bound.regulariser) * functions.outcome_weight
        return posterior.draw(functions, free, moments, regulariser=zeta, count=count, rng=rng)

    def _bundle(self, free: Arrays, index: int, coefficients: np.ndarray) -> Draws:
        """A bundle of draws [1, …] in which the common point occurs once."""
        key = np.asarray(jax.random.key_data(self._key(1)))
        point = jax.tree.map(lambda leaf: np.asarray(leaf)[index], free)
        own = {"coefficients": np.swapaxes(coefficients, 0, 1)}
        bundle = Draws({"point": point, "key": key}, own)
        return jax.tree.map(lambda leaf: leaf[None], bundle)

    def _key(self, use: int) -> jax.Array:
        return jax.random.fold_in(stream_key(self.seed, "latent keys"), use)

    def _diagnostics(self, learned: Minima, acceptance: float) -> dict[str, object]:
        free = jax.tree.map(lambda leaf: leaf[0], learned.free)
        sharing = {
            model: BySite(np.asarray(self.bound.functions.sharing(free, model, self.sites)), axes=2)
            for model in dict.fromkeys(MODELS.values())
        }
        return {
            "bound": -float(learned.values[0]),
            "acceptance": acceptance,
            "transfer": sharing,
            "history": Trace(learned.history),
        }


def budget(settings: CausalRFFSettings, folds: int) -> dict[str, int]:
    """The number of θ for which each stage is asked at most."""
    return {"gaussian": (1 + folds) * settings.gaussian_rounds, "gaussian/moments": SETS + folds}


def shapes(functions: StructuralFunctions, sites: int) -> Arrays:
    """The shapes of θ for this number of sites."""
    of_two, of_three = (start(functions, count, 0) for count in (2, 3))

    def grown(small: np.ndarray, larger: np.ndarray) -> jax.ShapeDtypeStruct:
        each = zip(np.shape(small), np.shape(larger), strict=True)
        return jax.ShapeDtypeStruct(tuple(sites if a != b else a for a, b in each), float)

    return jax.tree.map(grown, of_two, of_three)


def make_functions(
    settings: CausalRFFSettings, context: CausalRFFContext, columns: ColumnKinds, *, binary: bool
) -> StructuralFunctions:
    return StructuralFunctions(
        latent=jnp.asarray(context.latent_frequencies),
        observed=jnp.asarray(context.observed_frequencies),
        columns=columns,
        binary=binary,
        symmetric=settings.symmetric,
        transfer=settings.transfer,
    )


def make_bound(settings: CausalRFFSettings, functions: StructuralFunctions) -> LatentBound:
    return LatentBound(functions, jnp.asarray(settings.regulariser), settings.monte_carlo)


def make_model(settings: CausalRFFSettings, functions: StructuralFunctions, family: Family) -> GaussianModel:
    return GaussianModel(_sampler(settings, functions), family)


def make_candidate(
    settings: CausalRFFSettings, functions: StructuralFunctions, *, sites: int, seed: int
) -> GaussianCandidate:
    return GaussianCandidate(
        make_bound(settings, functions),
        sites=sites,
        rounds=settings.gaussian_rounds,
        rate=settings.learning_rate,
        draws=settings.draws,
        seed=seed,
    )


def stages(settings: CausalRFFSettings, functions: StructuralFunctions) -> dict[str, Stage]:
    moments = posterior.LatentMoments(_sampler(settings, functions))
    return {"gaussian": make_bound(settings, functions), "gaussian/moments": moments}


def _sampler(settings: CausalRFFSettings, functions: StructuralFunctions) -> LatentSampler:
    return LatentSampler(functions, metropolis=settings.sampler == "metropolis")


def drawn_frequencies(
    settings: CausalRFFSettings, covariates: int, seed: int, *, used: bool
) -> dict[str, np.ndarray]:
    """Frequencies for functions of z and of (y, x), drawn from the seed; empty unless used."""
    dimensions = {"latent": settings.latent_dimension, "observed": covariates + 1}
    count = settings.frequencies if used else 0
    return {
        f"{name}_frequencies": _frequencies(settings, dimension, count, stream(seed, f"{name} frequencies"))
        for name, dimension in dimensions.items()
    }


def _frequencies(
    settings: CausalRFFSettings, dimension: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    if not count:
        return np.zeros((0, dimension))
    return frequencies(settings.kernel, dimension, count, rng, orthogonal=settings.orthogonal)
