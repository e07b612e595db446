"""Noise correlation: how a person's two noises go together, no data can tell; what hangs on it?

Average effects do not contain it. Effects of people do: the share of them who gain, and how sure one is.
Nothing is fitted again, because no fit depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unpooled.estimators.base import Estimator
from unpooled.estimators.robustness.analysis import Analysis, unfitted
from unpooled.estimators.robustness.refit import RobustnessCheck
from unpooled.study import Study

NAME = "noise_correlation"
GRID = (-0.9, -0.5, 0.0, 0.5, 0.9)


def has_noise_correlation(model: Estimator) -> bool:
    """Whether the method has this setting."""
    return NAME in model.get_params()


def noise_correlation(analysis: Analysis) -> RobustnessCheck:
    """The mean of people's own effects over the grid, and how many of them go with the average."""
    if analysis.tell is not None:
        analysis.tell(NAME)
    main, own = analysis.main, float(analysis.model.get_params()[NAME])
    grid = sorted({*GRID, own})
    means, shares = np.transpose([people(with_correlation(analysis, value), main.estimate) for value in grid])
    left = bool(np.any((means < main.lower) | (means > main.upper)))
    most = bool(shares.min() < 0.5 < shares.max())
    words = (
        f"Effects of people under noise correlations from {grid[0]:g} to {grid[-1]:g}; the average effect "
        "does not contain it. Worrying is a mean of people's effects outside the average's interval, or a "
        f"majority that changes sides. The mean {'leaves' if left else 'stays inside'} the interval; from "
        f"{shares.min():.0%} to {shares.max():.0%} of people go the way of the average."
    )
    here = float(means[grid.index(own)])
    return RobustnessCheck(NAME, here, float(means.min()), float(means.max()), left or most, words)


def with_correlation(analysis: Analysis, value: float) -> Estimator:
    """The fitted model with another noise correlation, beside its tables."""
    result = analysis.model.result_
    method = {"name": result.study.method.name, **result.study.method.settings, NAME: value}
    changed = unfitted(analysis.model).set_params(**{NAME: value})
    changed.result_ = replace(result, study=Study(**{**result.study.model_dump(), "method": method}))
    return changed.attach(analysis.tables, limits=analysis.limits)


def people(model: Estimator, average: float) -> tuple[float, float]:
    """The mean of people's effects, and the share of them that have the average's sign."""
    total, agreeing, count = 0.0, 0.0, 0
    for site in model.result_.sites:
        draws = model.ite_draws(site)
        total += float(draws.mean(axis=0).sum())
        agreeing += float((np.sign(draws) == np.sign(average)).mean(axis=0).sum())
        count += draws.shape[1]
    return total / count, agreeing / count
