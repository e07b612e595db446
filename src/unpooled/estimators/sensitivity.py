"""Sensitivity to values that are not missing at random: the average effect with shifted missing values.

No data can show whether values are missing at random. The study is therefore fitted again for each size of a
shift δ: where u is missing, treatment and outcome depend on u + δ, while p(u | x) remains that of u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from unpooled.data import Table
from unpooled.disclosure.limits import NONE, Limits
from unpooled.errors import StudyError
from unpooled.estimators.base import Watcher
from unpooled.estimators.causal_fi import CausalFI
from unpooled.study import Study

SIZES = (-0.5, -0.25, 0.0, 0.25, 0.5)
"""In standard deviations, given everything that is observed of a person."""


@dataclass(frozen=True)
class Sensitivity:
    """The average effect by size of the shift, and the sizes at which the conclusion changes."""

    column: str
    curve: pd.DataFrame
    """size, ate, lower, upper: one row per size."""
    tipping: dict[str, float | None]
    """The nearest size below and above 0 at which the interval starts or ceases to contain 0, or None."""


def sensitivity(
    model: CausalFI,
    study: Study,
    sites: Mapping[str, Table] | None = None,
    *,
    column: str,
    sizes: Sequence[float] = SIZES,
    arm: Literal["control", "treated"] | None = None,
    site: str | None = None,
    alpha: float = 0.05,
    limits: Limits = NONE,
    watch: Watcher | None = None,
) -> Sensitivity:
    """Fit the study again with shifted missing values, to see how the average effect depends on them.

    Each fit assumes that the missing values of one column are larger or smaller, by a shift, than expected
    from what is observed. All fits use the structure that the main analysis chose. The main analysis is
    fitted first, and is the result for a shift of 0.

    Parameters
    ----------
    model : CausalFI
        The settings of the analysis, with the default inference and without shifts. It is not changed.
    study : Study
        The study, as in `fit`.
    sites : dict of str to table, optional
        A table for each site, as in `fit`. By default, the tables that the study names.
    column : str
        The incomplete column whose missing values are shifted: numbers, counts or 0/1.
    sizes : sequence of float, default=(-0.5, -0.25, 0.0, 0.25, 0.5)
        Sizes of the shift, in standard deviations of a number, or in probits of a 0/1 column or a count,
        given everything that is observed of a person. Half a standard deviation is a large shift.
    arm : {"control", "treated"}, optional
        Shift in this arm only. By default in both.
    site : str, optional
        Shift at this site only. By default at all.
    alpha : float, default=0.05
        The intervals have probability 1 - `alpha`.
    limits : Limits, optional
        Disclosure limits of the sites, off by default.
    watch : callable, optional
        Called with each finished `Round` of every fit.

    Returns
    -------
    Sensitivity
        ``curve`` has the average effect and its interval for each size. ``tipping`` has the sizes nearest to
        0 at which the interval starts or ceases to contain 0.

    Raises
    ------
    StudyError
        If the model has shifts or another inference, or if column, arm or site is unknown.

    Examples
    --------
    >>> found = sensitivity(CausalFI(seed=7), study, sites, column="smoking")  # doctest: +SKIP
    >>> found.tipping  # doctest: +SKIP
    """
    if model.inference != "compatible" or model.shifts:
        raise StudyError(
            "sensitivity starts from an analysis without shifts, with compatible inference",
            found=f"inference = '{model.inference}', {len(model.shifts)} shifts",
            remedy="pass a CausalFI with the default inference and no shifts",
        )
    # Checked before the main analysis, which takes a minute.
    from unpooled.methods.causal_fi.settings import ARMS, Shift, require_known  # with the whole method: late

    require_known("column", column, list(study.columns.incomplete), "an incomplete column of the study")
    if arm is not None:
        require_known("arm", arm, list(ARMS), "control or treated")
    asked = model.get_params()
    main = CausalFI(**asked).fit(study, sites, limits=limits, watch=watch)
    structure = str(main.result_.fit_diagnostics["structure"])
    rows = []
    for size in sorted({0.0, *map(float, sizes)}):
        shift = Shift(column=column, size=size, arm=arm, site=site)
        fitted = main
        if size:
            changed = {**asked, "structure": structure, "shifts": [shift.model_dump()]}
            fitted = CausalFI(**changed).fit(study, sites, limits=limits, watch=watch)
        lower, upper = fitted.ate_interval(alpha=alpha)
        rows.append({"size": size, "ate": fitted.ate(), "lower": lower, "upper": upper})
    curve = pd.DataFrame(rows)
    return Sensitivity(column, curve, {"below": tipping(curve, -1), "above": tipping(curve, 1)})


def tipping(curve: pd.DataFrame, direction: Literal[-1, 1]) -> float | None:
    """The size nearest to 0, in a direction, at which an end of the interval crosses 0; or None.

    Ends are interpolated linearly between the sizes.

    >>> sizes, lower = [0.0, 0.5, 1.0], [0.4, 0.2, -0.2]
    >>> round(tipping(pd.DataFrame({"size": sizes, "lower": lower, "upper": [2.0, 2.0, 2.0]}), 1), 6)
    0.75
    """
    order = np.argsort(direction * curve["size"].to_numpy())
    ordered = curve.iloc[order[direction * curve["size"].to_numpy()[order] >= 0.0]]
    size = ordered["size"].to_numpy()
    found = []
    for bound in ("lower", "upper"):
        value = ordered[bound].to_numpy()
        crossing = np.flatnonzero(np.sign(value[1:]) != np.sign(value[:-1]))
        if len(crossing):
            at = crossing[0]
            share = value[at] / (value[at] - value[at + 1])
            found.append(float(size[at] + share * (size[at + 1] - size[at])))
    return min(found, key=abs) if found else None
