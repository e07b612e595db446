"""Effects of people beside their table, under draws of the linear outcome regressions."""

from __future__ import annotations

import numpy as np

from unpooled.maths.streams import stream
from unpooled.methods.aipw.regressions import features
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows


def conditional(draws: Arrays, people: Rows) -> np.ndarray:
    """Difference of the two regressions [K, people]; spread is that of their coefficients alone."""
    both = draws["outcome"]
    return (both[:, 1] - both[:, 0]) @ np.asarray(features(people.covariates)).T


def individual(draws: Arrays, people: Rows, seed: int) -> np.ndarray:
    """(2w − 1)(y − y_mis) [K, people]: the other arm's outcome is its regression with normal noise."""
    design, arm = np.asarray(features(people.covariates)), np.asarray(people.treatment).astype(int)
    means, person = draws["outcome"] @ design.T, np.arange(len(arm))
    noise = stream(seed, "individual effects", int(people.site)).standard_normal((len(means), len(arm)))
    missing = means[:, 1 - arm, person] + np.sqrt(draws["noise"][:, 1 - arm]) * noise
    return (2.0 * arm - 1.0) * (np.asarray(people.outcome) - missing)
