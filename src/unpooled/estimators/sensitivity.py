"""Sensitivity of the average effect to values that are not missing at random.

Whether values are missing at random given the observed data cannot be tested. The study is therefore
refitted for each size of a shift δ: the models of treatment and outcome use u + δ where u is missing, and
p(u | x) uses u itself.
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
from unpooled.methods.causal_fi.settings import ARMS, Shift, require_known
from unpooled.study import Study

SIZES = (-0.5, -0.25, 0.0, 0.25, 0.5)
"""In standard deviations given a person's observed data; half a standard deviation is a large shift."""


@dataclass(frozen=True)
class Sensitivity:
    """The average effect by size of the shift, and its tipping points."""

    column: str
    curve: pd.DataFrame
    """size, ate, lower, upper: one row per size."""
    tipping: dict[str, float | None]
    """The sizes closest to 0, below and above, at which the interval starts or stops including 0; or None."""


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
    """Fit the study once for each size of the shift, with the structure chosen by the main analysis.

    The main analysis, with a shift of 0, is fitted first.
    """
    if model.inference != "compatible" or model.shifts:
        raise StudyError(
            "a sensitivity analysis needs inference='compatible' and no shifts",
            found=f"inference = '{model.inference}', {len(model.shifts)} shifts",
            remedy="pass a CausalFI with the default inference and no shifts",
        )
    # Validate before the main analysis, which may take a minute.
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
    """The size at which a limit of the interval first crosses 0 in a direction, by linear interpolation.

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
