"""The candidate with latent classes: variational EM finds the mode, Gibbs sampling draws from there."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.by_site import BySite, Trace
from unpooled.maths.compilation import Program
from unpooled.maths.partial_pooling import borrowed_shares
from unpooled.methods.causal_rff.classes import em, gibbs
from unpooled.methods.causal_rff.classes.cells import Cells, Counted, Variances, precision, prior_of, sums_of
from unpooled.methods.causal_rff.classes.em import Learned, most_classes
from unpooled.methods.causal_rff.classes.log_likelihoods import as_draws
from unpooled.methods.causal_rff.classes.mixture import Mixture
from unpooled.methods.causal_rff.fit import CandidateFit, noise_of
from unpooled.models.chain_checks import required_draws
from unpooled.optimise.procedure import Procedure, side_by_side
from unpooled.protocol.records import Draws

CLASSES = tuple(range(2, 9))
"""Numbers of classes to choose from by the bound."""
PEOPLE_PER_CLASS = 5
"""Minimum number of people per class, on average."""
FOLD_ROUNDS = 12
"""Maximum rounds of EM without a fold, which starts from the mode of the full fit."""


class ClassCandidate(NamedTuple):
    """See `unpooled.methods.causal_rff.fit.Candidate`."""

    mixture: Mixture
    rates: np.ndarray
    """Rate of each 0/1 covariate, about which the starts are drawn."""
    sites: int
    classes: tuple[int, ...]
    starts: int
    rounds: int
    sweeps: int
    draws: int
    seed: int

    def learn(self, folds: int) -> Procedure[Learned]:
        models = [k for k in self.classes for _ in range(self.starts)]
        initial = em.starts(self.mixture, models, self.sites, self.rates, self.seed)
        everybody = np.full(len(models), -1)
        return em.learn(self.mixture, initial, rounds=self.rounds, fold=everybody, annealed=True)

    def sample(self, learned: Learned, folds: int) -> Procedure[CandidateFit]:
        mode = em.best(learned)
        chains = -(-self.draws // gibbs.kept(self.sweeps))
        sampling = gibbs.sample(
            self.mixture, mode, chains=chains, sweeps=self.sweeps, required=required_draws(self.draws),
            seed=self.seed,
        )  # fmt: skip
        if folds:
            (drawn, mixing), held_out = yield from side_by_side(sampling, self._without(mode, folds))
            without = _one_draw_each(held_out)
        else:
            (drawn, mixing), without = (yield from sampling), None
        count = len(drawn.shared["level"])
        selected = np.linspace(0, count - 1, self.draws).round().astype(int)
        diagnostics = _diagnostics(learned) | {
            "borrowed": BySite(borrowed(self.mixture, mode), axes=2),
            **noise_of(drawn, counts=self.mixture.outcome.link is not None),
            "mixing": mixing.summary(),
        }
        chosen = jax.tree.map(lambda leaf: leaf[selected], drawn)
        return CandidateFit(chosen, without, diagnostics, mixing.checks("sweeps"))

    def _without(self, mode: Learned, folds: int) -> Procedure[Learned]:
        many, fold = mode.taking([0] * folds), np.arange(folds)
        return em.learn(self.mixture, many, rounds=FOLD_ROUNDS, fold=fold, annealed=False)


def _one_draw_each(learned: Learned) -> Draws:
    """The EM fits without each fold as one draw each; the predictive density includes their variances."""
    return jax.tree.map(lambda leaf: leaf[:, None], as_draws(learned.likelihoods, most_classes(learned)))


def _diagnostics(learned: Learned) -> dict[str, object]:
    classes = np.asarray(learned.states.active).sum(axis=1).astype(int).tolist()
    return {
        "classes": classes[int(np.argmax(learned.bounds))],
        "bounds": dict(zip(map(str, classes), learned.bounds.tolist(), strict=True)),
        "history": Trace(learned.history),
    }


def borrowed(mixture: Mixture, mode: Learned) -> np.ndarray:
    """The borrowed shares between sites of one model, given the expected class memberships."""
    state, people = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (mode.states, mode.people))
    by_cell = people.reshape(people.shape[0], -1)
    return np.asarray(of_cells(mixture.outcome, jnp.tile(state.active, 2), by_cell, state.outcome))


@Program
def of_cells(
    cells: Cells, active: Array, people: Float[Array, "m c"], variances: Variances
) -> Float[Array, "m m"]:
    """Borrowed shares [site, site]; they depend on the numbers of people only, not on the outcomes."""
    counted = Counted(people, jnp.zeros_like(people), jnp.zeros(2))
    sums = sums_of(*precision(cells, counted, variances))
    return borrowed_shares(sums, prior_of(cells, active, variances.values))
