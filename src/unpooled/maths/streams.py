"""Random streams by name: one seed, and a number for each purpose, so that no two coincide."""

from __future__ import annotations

import jax
import numpy as np

STREAMS = {
    # NumPy generators, asked for by `stream`. Only one method runs in a study, so methods may share numbers.
    "inducing inputs": 1,
    "folds": 2,
    "further folds": 14,
    "regression draws": 3,
    "mean network": 3,
    "coefficient draws": 4,
    "class starts": 4,
    "site effects": 5,
    "class draws": 5,
    "network weights": 5,
    "held-out regression draws": 6,
    "diagnostic folds": 7,
    "frequencies": 8,
    "latent start": 9,
    "decoder draws": 10,
    "latent frequencies": 12,
    "observed frequencies": 13,
    "index starts": 20,
    "importance points": 21,
    "unexplained effects": 22,
    "weights and shifts": 23,
    "site draws": 24,
    "predictive draws": 25,
    "sweeps": 26,
    "class sweeps": 27,
    "effects": 28,
    "individual effects": 29,
    "people elsewhere": 40,
    "a site elsewhere": 41,
    "parts of people": 42,
    "trees": 43,
    # JAX keys, asked for by `stream_key`.
    "latent keys": 11,
    "subsample": 15,
}
"""The number of each stream."""


def stream(seed: int, name: str, *more: int) -> np.random.Generator:
    """The NumPy generator of one purpose, such as the folds of one site.

    >>> first, again, other = (stream(7, "folds", site).random() for site in (0, 0, 1))
    >>> first == again, first == other
    (True, False)
    """
    return np.random.default_rng([seed, STREAMS[name], *more])


def stream_key(seed: int, name: str, more: int = 0) -> jax.Array:
    """The JAX key of one purpose, before it is folded further."""
    return jax.random.fold_in(jax.random.key(seed), STREAMS[name] + more)


def key_data(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """The data of JAX keys [*shape, 2], drawn by NumPy: splitting a key would take a compilation."""
    return rng.integers(2**32, size=(*shape, 2), dtype=np.uint32)
