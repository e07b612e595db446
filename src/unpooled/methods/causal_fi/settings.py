"""What if values are not missing at random? Missing ones may be larger than what is seen would make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from unpooled.errors import StudyError, nearest
from unpooled.methods.settings import Conditions, MethodSettings
from unpooled.models.outcome_family import ClosedFamily, Logit, family_of
from unpooled.protocol.records import IncompleteColumn, Scaling

ARMS = ("control", "treated")


class Shift(BaseModel):
    """One column's missing values, at every site and in both arms unless it is said where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    size: float
    """In sds of a number; in probits of a 0/1 column or of a count."""
    arm: Literal["control", "treated"] | None = None
    site: str | None = None


def by_site(shifts: tuple[Shift, ...], scaling: Scaling) -> np.ndarray | None:
    """[site, arm, feature]; None where nothing is shifted."""
    if not any(shift.size for shift in shifts):
        return None
    sites = list(scaling.site_names)
    columns = {column.name: (column.kind, column.width) for column in scaling.incomplete_columns}
    first = dict(zip(columns, np.cumsum([0, *[width for _, width in columns.values()]]), strict=False))
    found = np.zeros((len(sites), len(ARMS), sum(width for _, width in columns.values())))
    for shift in shifts:
        require_known("column", shift.column, list(columns), "an incomplete column of the study")
        if columns[shift.column][0] == "categorical":
            raise StudyError(
                "a shift needs a column whose values can be larger",
                found=f"'{shift.column}', a category",
                remedy="shift a column of numbers, counts or 0/1",
            )
        if shift.site is not None:
            require_known("site", shift.site, sites, "a site of the study")
        where = [shift.site is None or name == shift.site for name in sites]
        arms = [shift.arm is None or name == shift.arm for name in ARMS]
        found[np.ix_(where, arms, [first[shift.column]])] += shift.size
    return found


def require_known(what: str, name: str, known: list[str], expected: str) -> None:
    """A column, an arm or a site by a name that there is."""
    if name not in known:
        raise StudyError(
            f"a shift's {what} must be {expected}", found=f"'{name}'", remedy=nearest(name, known)
        )


class CausalFISettings(MethodSettings):
    """What a user may choose; the defaults are what to use when nothing is known."""

    applies: ClassVar[Conditions] = (
        (("structure", "sweeps", "shifts"), {"inference": ("compatible",)}),
        (("folds",), {"inference": ("compatible",), "structure": ("auto",)}),
        (
            ("hidden", "rounds", "learning_rate", "monte_carlo", "imputations"),
            {"inference": ("variational",)},
        ),
    )

    inference: Literal["compatible", "variational"] = "compatible"
    """Draws of everything that fit together; or the paper's networks, for comparison: hundreds of rounds."""
    draws: int = Field(default=160, ge=20, le=100_000)
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Correlation of a person's two noises: no data can tell it; it matters to individual effects only."""

    averaged: Literal["completed", "seen"] = "completed"
    """The average effect is of people completed given their own treatment and outcome; or, for comparison and
    as on paper, of τ(x, u_seen), which is biased where holes depend on the outcome."""

    structure: Literal["auto", "linear", "softplus", "index"] = "auto"
    """How an arm's outcome depends on the confounders; auto lets people held out decide."""
    folds: int = Field(default=3, ge=2, le=20)
    """In how many folds they are held out."""
    sweeps: int = Field(default=20, ge=2, le=10_000)
    """Rounds whose draws are kept, from as many chains as `draws` needs."""
    shifts: tuple[Shift, ...] = ()
    """What if missing values are larger than what is seen would make them? See `unpooled.sensitivity`."""

    hidden: tuple[int, ...] = (20, 20, 20)
    """Variational: widths of the networks' hidden layers."""
    rounds: int = Field(default=300, ge=1, le=100_000)
    """Variational: most rounds of either of its two stages."""
    learning_rate: float = Field(default=0.03, gt=0.0, le=1.0)
    monte_carlo: int = Field(default=4, ge=1, le=1000)
    """Variational: draws of the networks' weights in a round."""
    imputations: int = Field(default=100, ge=1, le=10_000)
    """Variational: draws of what is missing of a person, for each draw of the weights."""


@dataclass(frozen=True)
class CausalFIContext:
    """What all parties share beside the settings."""

    covariates: int
    columns: tuple[IncompleteColumn, ...]
    incomplete_mean: np.ndarray
    incomplete_sd: np.ndarray
    sites: int
    family: str
    outcome_mean: float
    outcome_sd: float
    shift: np.ndarray | None = None
    """[site, arm, feature]: how far missing values differ from those at random; None if they do not."""


def outcome_family(context: CausalFIContext) -> ClosedFamily:
    """0/1 outcomes by a probit, which fits the closed forms of the imputation."""
    found = family_of(context.family, context.outcome_mean, context.outcome_sd)
    assert not isinstance(found, Logit)
    return found
