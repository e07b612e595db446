"""Settings of CausalFI, including shifts of missing values for sensitivity analyses, and its context.

A shift describes a departure from missingness at random: missing values of a column are larger, by a given
amount, than the observed data predict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from unpooled.errors import StudyError, nearest
from unpooled.methods.settings import Conditions, MethodSettings
from unpooled.models.outcome_family import ClosedFamily, Logit, family_of
from unpooled.protocol.records import IncompleteColumn, Scaling, SiteSummaries

ARMS = ("control", "treated")


class Shift(BaseModel):
    """A shift of one column's missing values, at every site and in both arms unless restricted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    size: float
    """Size of the shift: in sds for a numeric column, on the probit scale for a 0/1 column or a count."""
    arm: Literal["control", "treated"] | None = None
    site: str | None = None


def by_site(shifts: tuple[Shift, ...], scaling: Scaling) -> np.ndarray | None:
    """The shifts as an array [site, arm, feature]; None if there are none, and at the sites."""
    if scaling.by_site is None or not any(shift.size for shift in shifts):
        return None
    sites = list(scaling.site_names)
    columns = {column.name: (column.kind, column.width) for column in scaling.incomplete_columns}
    first = dict(zip(columns, np.cumsum([0, *[width for _, width in columns.values()]]), strict=False))
    found = np.zeros((len(sites), len(ARMS), sum(width for _, width in columns.values())))
    for shift in shifts:
        require_known("column", shift.column, list(columns), "an incomplete column of the study")
        if columns[shift.column][0] == "categorical":
            raise StudyError(
                "a shift needs a column whose values are ordered",
                found=f"'{shift.column}', a categorical column",
                remedy="shift a numeric, count or 0/1 column",
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
    """Settings of CausalFI. The defaults are suitable for most studies."""

    applies: ClassVar[Conditions] = (
        (("structure", "sweeps", "most_sweeps", "shifts"), {"inference": ("compatible",)}),
        (("folds",), {"inference": ("compatible",), "structure": ("auto",)}),
        (("importance",), {"inference": ("compatible",), "structure": ("auto", "linear")}),
        (
            ("hidden", "rounds", "learning_rate", "monte_carlo", "imputations"),
            {"inference": ("variational",)},
        ),
    )

    inference: Literal["compatible", "variational"] = "compatible"
    """The inference: "compatible" draws parameters and missing values from one joint model by data
    augmentation; "variational" fits the paper's networks, for comparison, and takes hundreds of rounds."""
    draws: int = Field(default=160, ge=20, le=100_000)
    """Number of posterior draws; increase it for smoother interval limits."""
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Assumed correlation of the noise in a person's two potential outcomes. The data cannot identify it;
    it affects individual effects only."""

    averaged: Literal["completed", "seen"] = "completed"
    """How the average effect is computed: "completed" imputes each person's missing values given their own
    treatment and outcome; "seen" averages τ(x, u_seen) as in the paper, for comparison, and is biased if
    missingness depends on the outcome."""

    structure: Literal["auto", "linear", "softplus", "index"] = "auto"
    """How an arm's outcome depends on the confounders. "auto" chooses by held-out error; name a structure to
    save rounds."""
    folds: int = Field(default=3, ge=2, le=20)
    """Number of folds for the held-out errors that choose the structure."""
    sweeps: int = Field(default=20, ge=4, le=10_000)
    """Fewest rounds whose draws are kept. More sweeps mean fewer parallel chains for the same `draws`."""
    most_sweeps: int = Field(default=80, ge=4, le=10_000)
    """Most rounds after burn-in. Sampling ends earlier, once the chains have mixed; if it does not, the check
    "convergence" fails."""
    importance: bool = True
    """Whether importance sampling is tried if chains are slow, both arms are linear, and outcome and
    incomplete covariates are numbers. It asks the sites for thousands of log likelihoods; small sites with
    limits do without it."""
    shifts: tuple[Shift, ...] = ()
    """Shifts of missing values away from missingness at random, for sensitivity analyses; see
    `unpooled.sensitivity`."""

    hidden: tuple[int, ...] = (20, 20, 20)
    """Variational: widths of the networks' hidden layers."""
    rounds: int = Field(default=300, ge=1, le=100_000)
    """Variational: maximum number of rounds of each of the two stages."""
    learning_rate: float = Field(default=0.03, gt=0.0, le=1.0)
    """Variational: step size of the optimiser; lower it if the bound becomes non-finite."""
    monte_carlo: int = Field(default=4, ge=1, le=1000)
    """Variational: draws of the networks' weights per round; more reduce the noise of the gradient."""
    imputations: int = Field(default=100, ge=1, le=10_000)
    """Variational: imputations of a person's missing values per draw of the weights, for conditional
    effects."""

    @property
    def needs_both_arms(self) -> str:
        return (
            "leave these sites out, or use FedCI with complete columns: CausalFI models who is treated alike "
            "at every site, which is wrong where the site alone decides it"
        )


@dataclass(frozen=True)
class CausalFIContext:
    """Values that all parties share in addition to the settings."""

    covariates: int
    columns: tuple[IncompleteColumn, ...]
    incomplete_mean: np.ndarray
    incomplete_sd: np.ndarray
    sites: int
    family: str
    outcome_mean: float
    outcome_sd: float
    shift: np.ndarray | None = None
    """Shifts of missing values [site, arm, feature]; None if values are missing at random."""
    by_site: SiteSummaries | None = None
    """What is known of single sites; None at the sites."""


def outcome_family(context: CausalFIContext) -> ClosedFamily:
    """The outcome's family, with a probit for 0/1 outcomes, as the imputation's closed forms require."""
    mean, sd = context.outcome_mean, context.outcome_sd
    found = family_of(context.family, mean, sd, counts="negative_binomial")
    assert not isinstance(found, Logit)
    return found
