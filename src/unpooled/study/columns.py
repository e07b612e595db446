"""The role of each column in a study."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from unpooled.study.family import AskedFamily


def flag_name(column: str) -> str:
    """The name of the 0/1 covariate that says whose value of a column is missing.

    >>> flag_name("bmi")
    'bmi missing'
    """
    return f"{column} missing"


Missing = Literal["model", "complete cases", "indicator"]
"""What is done about missing values of the incomplete columns."""


class ColumnRoles(BaseModel):
    """The columns of a study and their roles.

    Parameters
    ----------
    treatment : str
        The column with the treatment, which has two levels. They should be 0 (control) and 1 (treated);
        otherwise `treated` is required.
    outcome : str
        The column with the outcome, stored as numbers.
    covariates : sequence of str, or str
        The confounders: everything that influences both treatment and outcome. Numbers or text, at least one
        column, and no missing values.
    incomplete : sequence of str, or str, default=()
        Confounders with missing values. `missing` says what is done about them.
    missing : {"model", "complete cases", "indicator"}, default="model"
        What is done about missing values of the columns in `incomplete`. "model" leaves them to the method;
        only ``causal_fi`` has a model of them. "complete cases" leaves out people with a missing value.
        "indicator" puts the mean of the column over all sites, or the first level, in place of a missing
        value, and adds a 0/1 covariate ``"NAME missing"``.
    weight : str, optional
        The column with sampling weights: numbers above 0, of the same meaning at every site. How many people
        of the population a person stands for, up to a factor. Methods that do not support weights refuse
        them.
    cluster : str, optional
        The column with the cluster of each person, such as a ward or a household. People of different sites
        are never in the same cluster. Methods whose errors assume that people are independent refuse
        clusters.
    id : str or sequence of str, optional
        The column, or columns, that identify a person at every site, such as a national number. With it, a
        person who is at several sites is counted once (see `Privacy`). The values are never sent.
    id_check : {"mod11", "luhn"}, optional
        The rule of the last digit of `id`: "mod11" for British NHS numbers, "luhn" for many others. Rows
        whose digit is wrong are kept, but never matched with other rows.
    treated : str, int, float or bool, optional
        The treated level. Required if the levels of the treatment are not 0 and 1.
    family : {"auto", "continuous", "binary", "count"}, default="auto"
        The kind of outcome: any number, 0 and 1, or 0, 1, 2, … . "auto" chooses when the sites agree: binary
        if the outcome is 0 or 1 at every site; count if it is a whole number, 0 or more, at every site, with
        a mean of at most 20 and a variance of at least half the mean; otherwise continuous. A named family
        is required of every value. Effects are differences of means, and therefore differences of risks for
        binary outcomes.
    drop_unknown : bool, default=False
        Whether to leave out people whose treatment or outcome is missing. By default, a table with such
        people is refused.
    units : dict of str to str, default={}
        The units of columns, shown in the report, such as ``{"weight": "kg"}``.

    Examples
    --------
    >>> roles = ColumnRoles(treatment="quit", outcome="weight", covariates=["age", "sex"])
    >>> roles.names
    ('quit', 'weight', 'age', 'sex')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    treatment: str = Field(min_length=1)
    outcome: str = Field(min_length=1)
    covariates: tuple[str, ...] = Field(min_length=1)
    incomplete: tuple[str, ...] = ()
    missing: Missing = "model"
    weight: str | None = Field(default=None, min_length=1)
    cluster: str | None = Field(default=None, min_length=1)
    id: str | tuple[str, ...] | None = None
    id_check: Literal["mod11", "luhn"] | None = None
    treated: str | int | float | bool | None = None
    family: AskedFamily = "auto"
    drop_unknown: bool = False
    units: dict[str, str] = Field(default_factory=dict)

    @field_validator("covariates", "incomplete", mode="before")
    @classmethod
    def _one_name_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("id")
    @classmethod
    def _names_of_columns(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if value is not None and not all((value,) if isinstance(value, str) else value or ("",)):
            raise ValueError("the name of a column, or a list of names, is needed")
        return value

    @model_validator(mode="after")
    def _each_column_has_one_role(self) -> ColumnRoles:
        names = list(self.names)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"each column must have exactly one role; named more than once: {', '.join(twice)}"
            )
        unknown = sorted(set(self.units) - set(names))
        if unknown:
            raise ValueError(f"units are given for columns that have no role: {', '.join(unknown)}")
        if self.id_check is not None and len(self.identity) != 1:
            raise ValueError("`id_check` needs an `id` of one column")
        if self.missing != "model" and not self.incomplete:
            raise ValueError(f'missing = "{self.missing}" needs columns in `incomplete`')
        flags = [flag_name(name) for name in self.incomplete if self.missing == "indicator"]
        if taken := sorted(set(flags) & set(names)):
            raise ValueError(f"a column may not have the name of an indicator that is added: {taken[0]}")
        return self

    @property
    def modelled(self) -> tuple[str, ...]:
        """The columns whose missing values the method itself deals with.

        >>> ColumnRoles(treatment="w", outcome="y", covariates=["x"], incomplete="u").modelled
        ('u',)
        """
        return self.incomplete if self.missing == "model" else ()

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a person; none if the study names none.

        >>> ColumnRoles(treatment="w", outcome="y", covariates=["x"], id="nhs_number").identity
        ('nhs_number',)
        """
        return () if self.id is None else (self.id,) if isinstance(self.id, str) else self.id

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that the study reads, beginning with treatment and outcome."""
        design = [name for name in (self.weight, self.cluster) if name is not None]
        return (self.treatment, self.outcome, *self.covariates, *self.incomplete, *self.identity, *design)

    @property
    def outcome_unit(self) -> str:
        """The unit of the outcome, or an empty string."""
        return self.units.get(self.outcome, "")
