"""The effect along one covariate, with the others at their means over the sites, not at anyone's values."""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd

from unpooled.effects.summary import interval
from unpooled.estimators import Estimator
from unpooled.protocol.records import Scaling
from unpooled.study import ColumnSchema, Schema

POINTS, REACH = 25, 1.64
"""Standard deviations either side of the mean: 90% of people if the covariate is normal."""
SHOWN = 4
"""How many covariates are shown: those along which the effect changes most."""


def profiles(model: Estimator) -> pd.DataFrame | None:
    """covariate, value, effect, lower, upper at the largest site; None if its table is not attached."""
    outcome = model.result_
    site = outcome.sites[int(np.argmax(outcome.counts))]
    if site not in getattr(model, "sites_", {}):
        return None
    schema = outcome.schema
    moving = [column for column in schema.covariates if column.kind in ("numeric", "count")]
    if not moving:
        return None
    typical = _typical(schema, outcome.scaling)
    asked = [_along(column, schema, outcome.scaling, typical) for column in moving]
    people = pd.concat([people for _, people in asked], ignore_index=True)
    draws = cast(Estimator, model).effect_draws(people, site=site)
    lower, upper = interval(draws, 0.05)
    found = pd.DataFrame(
        {
            "covariate": np.repeat([column.name for column in moving], POINTS),
            "value": np.concatenate([values for values, _ in asked]),
            "effect": draws.mean(axis=0),
            "lower": lower,
            "upper": upper,
            "site": site,
        }
    )
    change = {name: float(np.ptp(curve["effect"])) for name, curve in found.groupby("covariate", sort=False)}
    most = sorted(change, key=change.__getitem__, reverse=True)[:SHOWN]
    return found.loc[[name in most for name in found["covariate"]]].reset_index(drop=True)


def _along(
    column: ColumnSchema, schema: Schema, scaling: Scaling, typical: dict[str, object]
) -> tuple[np.ndarray, pd.DataFrame]:
    place = schema.features.index(column.name)
    mean, sd = float(scaling.mean[place]), float(scaling.sd[place])
    values = np.linspace(mean - REACH * sd, mean + REACH * sd, POINTS)
    return values, pd.DataFrame({**typical, column.name: values}, index=range(POINTS))


def _typical(schema: Schema, scaling: Scaling) -> dict[str, object]:
    """Means of numeric covariates, the most frequent level of others; incomplete columns are missing."""
    mean, place, found = np.asarray(scaling.mean), 0, {}
    for column in schema.covariates:
        if column.flags is not None:  # nothing is missing
            place += 1
            continue
        rates = mean[place : place + len(column.features)]
        place += len(column.features)
        if column.kind == "categorical":
            found[column.name] = column.levels[int(np.argmax([1.0 - rates.sum(), *rates]))]
        else:
            found[column.name] = float(rates[0] > 0.5) if column.kind == "binary" else float(rates[0])
    return {**found, **{column.name: np.nan for column in schema.incomplete}}
