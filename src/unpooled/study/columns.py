"""The role of each column, named once."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Family = Literal["continuous", "binary", "count"]


class Columns(BaseModel):
    """Which column is the treatment, which the outcome, which the covariates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    treatment: str = Field(min_length=1)
    outcome: str = Field(min_length=1)
    covariates: tuple[str, ...] = Field(min_length=1)
    incomplete: tuple[str, ...] = ()
    id: str | None = None
    treated: str | int | float | bool | None = None
    family: Family = "continuous"
    """Which outcomes are let in. FedCI models the mean of any of them with Gaussian noise: effects are
    differences of means, of rates for 0/1 outcomes."""
    drop_unknown: bool = False
    """Whether people whose treatment or outcome is missing are left out; else their table is refused."""
    units: dict[str, str] = Field(default_factory=dict)

    @field_validator("covariates", "incomplete", mode="before")
    @classmethod
    def _one_name_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _each_column_has_one_role(self) -> Columns:
        names = [self.treatment, self.outcome, *self.covariates, *self.incomplete]
        if self.id is not None:
            names.append(self.id)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"each column must have exactly one role; named more than once: {', '.join(twice)}"
            )
        unknown = sorted(set(self.units) - set(names))
        if unknown:
            raise ValueError(f"units are given for columns that have no role: {', '.join(unknown)}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Every column the study reads, treatment and outcome first."""
        identity = () if self.id is None else (self.id,)
        return (self.treatment, self.outcome, *self.covariates, *self.incomplete, *identity)

    @property
    def outcome_unit(self) -> str:
        return self.units.get(self.outcome, "")
