"""Importance sampling of CausalFI's posterior given what is observed, where its likelihood has a closed form.

Chains of data augmentation slow down as more is missing. Proposals that do not depend on the state of a chain
do not. The coordinator fits a distribution to what the chains have found, asks for the log likelihoods of
several hundred draws of it in one round, and improves the distribution by their weights, until enough of them
carry weight. Independence samplers then turn the weighted points into draws, which are measured as all other
chains are.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

import jax
import numpy as np

from unpooled.maths.adaptive_importance import (
    Student,
    WeightedPoints,
    effective_points,
    fitted_to,
    independence_chains,
    none_yet,
)
from unpooled.maths.streams import stream
from unpooled.methods.causal_fi.chain import Chain, Sizes
from unpooled.methods.causal_fi.model import BOUNDS
from unpooled.methods.causal_fi.observed_posterior import Coordinates
from unpooled.methods.causal_fi.sampler import AugmentationSampler
from unpooled.methods.causal_fi.structures import BendStructure
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import AverageOutcomes, Draws

ROUNDS = 14
"""Most rounds of proposals."""
PER_COORDINATE = 40
"""Points per round and coordinate."""
ENOUGH, FEWEST = 2000.0, 800.0
"""Effective points at which proposals end, and without which there are no draws."""
CHAINS, STATES = 4, 150
"""Independence samplers, and the number of states of each that are kept, evenly spaced."""


class ImportanceSample(NamedTuple):
    """States by step, as of several chains, with their draws and average effects; empty if there are none."""

    states: list[Chain]
    draws: list[Draws]
    effects: list[AverageOutcomes]
    taken: dict[str, float]
    """Numbers of rounds, of points, and of effective points."""


def possible(sampler: AugmentationSampler, structure: BendStructure) -> bool:
    """Whether the likelihood has a closed form, with few enough parameters."""
    return sampler.has_likelihood and structure.name == "linear"


def most_points(sizes: Sizes) -> int:
    """Most points whose log likelihood may be asked for."""
    return ROUNDS * PER_COORDINATE * Coordinates(sizes).size


def features(sizes: Sizes) -> int:
    """For the sites' limits: features whose products would be as many numbers as the log likelihoods."""
    return ceil(sqrt(2.0 * most_points(sizes)))


def sample(
    sampler: AugmentationSampler, structure: BendStructure, states: list[Chain], use: int
) -> Procedure[ImportanceSample]:
    """Sample the posterior; the first proposals are fitted to the states of chains that have not mixed."""
    coordinates, rng = Coordinates(sampler.sizes), stream(sampler.seed, "importance points", use)
    like = states[-1]
    found = np.concatenate([coordinates.vectors(one) for one in states])
    proposal = fitted_to(found, np.full(len(found), 1.0 / len(found)))
    points, rounds, effective = none_yet(coordinates.size), 0, 0.0
    while rounds < ROUNDS and effective < ENOUGH:
        points = yield from _round(sampler, coordinates, points, proposal, like, rng)
        logs = points.log_weights
        rounds, effective = rounds + 1, effective_points(np.exp(logs - np.max(logs)))
        proposal = points.fitted()
    taken = {"rounds": rounds, "points": len(points.points), "effective_points": effective}
    if effective < FEWEST:
        return ImportanceSample([], [], [], taken)
    indices = independence_chains(points.log_weights, CHAINS, rng)
    kept = indices[np.linspace(0, len(indices) - 1, STATES + 1).round().astype(int)[1:]]
    steps = [coordinates.chains(points.points[one], like) for one in kept]
    draws = [sampler.draws(one, use, number) for number, one in enumerate(steps)]
    every: Draws = jax.tree.map(lambda *leaves: np.concatenate(leaves), *draws)
    average = yield from sampler.effects(structure, every)
    effects = [average.selected(one) for one in np.split(np.arange(len(average.sample)), STATES)]
    return ImportanceSample(steps, draws, effects, taken)


def _round(
    sampler: AugmentationSampler, coordinates: Coordinates, points: WeightedPoints, proposal: Student,
    like: Chain, rng: np.random.Generator,
) -> Procedure[WeightedPoints]:  # fmt: skip
    """Propose points and weight them; the target is zero outside the bounds that sites accept."""
    drawn = proposal.draw(PER_COORDINATE * coordinates.size, rng)
    inside = _inside(coordinates.chains(drawn, like))
    asked = coordinates.chains(np.where(inside[:, None], drawn, proposal.centre), like)
    logs = coordinates.log_prior(asked) + (yield from sampler.log_likelihood(asked))
    return points.with_points(drawn, np.where(inside & np.isfinite(logs), logs, -np.inf), proposal)


def _inside(chains: Chain) -> np.ndarray:
    """Which states are within the bounds of the sites."""
    parts = {
        **{name: getattr(chains, name) for name in ("treatment", "outcome", "noise", "offset")},
        **{name: chains.confounders[name] for name in ("intercept", "slopes", "covariance")},
    }
    found = np.ones(len(chains.noise), dtype=bool)
    for name, value in parts.items():
        low, high = BOUNDS[name]
        within = (value >= low) & (value <= high)
        found &= within.reshape(len(found), -1).all(axis=1)
    return found
