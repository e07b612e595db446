"""The mixture of draws over the structures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unpooled.protocol.records import TARGETS, AverageOutcomes


def mix(by_structure: dict[str, np.ndarray], weights: dict[str, float], count: int) -> np.ndarray:
    """Mix the draws of all structures into `count` draws [count, …], in proportion to their weights.

    The mean of the mixture is the stacked estimate, and its spread includes that between structures.
    """
    flat = {name: _merge(effects) for name, effects in by_structure.items()}
    shares = _shares(weights, count)
    parts = [
        flat[name][np.linspace(0, len(flat[name]) - 1, share).round().astype(int)]
        for name, share in shares.items()
    ]
    return np.concatenate(parts)


def mixed(by_structure: dict[str, AverageOutcomes], weights: dict[str, float], count: int) -> AverageOutcomes:
    """The same for mean outcomes."""
    both = {
        target: mix(
            {name: getattr(one, target)[:, None] for name, one in by_structure.items()}, weights, count
        )
        for target in TARGETS
    }
    return replace(next(iter(by_structure.values())), **both)


def _merge(effects: np.ndarray) -> np.ndarray:
    """Merge the axes [θ, j, …] into one axis of draws."""
    return effects.reshape(-1, *effects.shape[2:])


def _shares(weights: dict[str, float], count: int) -> dict[str, int]:
    """The number of draws of each structure; the remainder goes to the one with the largest weight."""
    shares = {name: int(weight * count) for name, weight in weights.items()}
    heaviest = max(weights, key=lambda name: weights[name])
    shares[heaviest] += count - sum(shares.values())
    return shares
