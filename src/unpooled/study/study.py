"""A study: the roles of the columns, the method, the seed, and the location of the sites' tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from unpooled.errors import Problems, StudyError, nearest
from unpooled.study.columns import ColumnRoles
from unpooled.study.subgroups import Entry, check_subgroups

ALL_SITES = "all sites"
"""The label of all sites together in result tables; no site may have this name."""
LEAST_MASKED = 3
"""Fewest sites whose sums can be masked."""


class Source(BaseModel):
    """The location of one site's table: a file, or a database with a query.

    Parameters
    ----------
    path : str, optional
        A CSV file (.csv, .tsv or .txt, also with .gz) or a Parquet file.
    url : str, optional
        A database URL such as ``postgresql://reader@host/registry``, instead of `path`.
    query : str, optional
        The SQL query that returns the table. Required with `url`.
    delimiter : str, optional
        The delimiter of a CSV file. By default a comma, and a tab for .tsv.

    Examples
    --------
    >>> Source(path="north.csv", delimiter=";")
    Source(path='north.csv', query=None, delimiter=';')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = None
    url: str | None = Field(default=None, repr=False)  # it may contain a password
    query: str | None = None
    delimiter: str | None = None

    @model_validator(mode="after")
    def _a_file_or_a_query(self) -> Source:
        if (self.path is None) == (self.url is None):
            raise ValueError(
                "give either `path` (a CSV or Parquet file) or `url` (a database), not both or neither"
            )
        if self.url is not None and not self.query:
            raise ValueError('a database `url` needs a `query`, such as query = "select * from visits"')
        if self.path is not None and self.query:
            raise ValueError("`query` goes with a database `url`, not with a file `path`")
        return self


class MethodSpec(BaseModel):
    """The name of the method and its settings.

    Parameters
    ----------
    name : str, default="fedci"
        "fedci", "causal_rff", "causal_fi", "aipw" or "meta_analysis".
    **settings
        Settings of the method, such as ``draws=500``. The method checks them.

    Examples
    --------
    >>> MethodSpec(name="fedci", draws=500).settings
    {'draws': 500}
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "fedci"

    @property
    def settings(self) -> dict[str, object]:
        """All keys except the name."""
        return dict(self.model_extra or {})


class Privacy(BaseModel):
    """What the coordinator sees of single sites, and what is done about people who are at several.

    Parameters
    ----------
    aggregation : {"auto", "secure", "plain"}, default="auto"
        "secure" hides the statistics of each site behind masks that cancel in the sum over all sites, so that
        the coordinator sees only sums; it needs at least three sites. "plain" sends the statistics of each
        site to the coordinator. "auto" is "secure" for three or more sites on other machines.
    duplicates : {"auto", "ignore", "leave out", "keyed hash"}, default="auto"
        What to do about people who are at several sites, by the columns named in `id`. "leave out" finds them
        by private set intersection, in which neither the coordinator nor a site can test guesses by itself.
        "keyed hash" compares hashes made with a key that all sites share: whoever has this key and the hashes
        can test every possible person. "ignore" counts such people more than once. "auto" is "leave out" if
        the study has an `id`, and otherwise "ignore".
    max_copies : int, default=1
        At how many sites a person may stay.

    Examples
    --------
    >>> Privacy(aggregation="secure").masks(sites=3, remote=False)
    True
    >>> Privacy().masks(sites=2, remote=True)
    False
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    aggregation: Literal["auto", "secure", "plain"] = "auto"
    duplicates: Literal["auto", "ignore", "leave out", "keyed hash"] = "auto"
    max_copies: int = Field(default=1, ge=1)

    def masks(self, *, sites: int, remote: bool) -> bool:
        """Whether the sums of a study with this many sites are masked."""
        if self.aggregation == "secure" and sites < LEAST_MASKED:
            raise StudyError(
                f"secure aggregation needs at least {LEAST_MASKED} sites",
                found=f"{sites}: from a sum of two, each site knows the numbers of the other",
                remedy='set aggregation = "plain" under [privacy], or wait for another site',
            )
        return self.aggregation == "secure" or (
            self.aggregation == "auto" and remote and sites >= LEAST_MASKED
        )


class Study(BaseModel):
    """The definition of a study: columns, method, seed and sites.

    The roles of the columns are given either as keywords, or together as `columns` like in a study file.

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
    columns : ColumnRoles or dict, optional
        The roles of the columns, instead of the keywords above.
    name : str, default="study"
        The name of the study, shown in the report.
    seed : int, default=0
        The seed of all random numbers, at least 0. The same seed gives the same results.
    min_sites : int, optional
        If a site becomes unreachable, the study starts again with the remaining sites, provided that at least
        this many are left. By default all sites are required.
    diagnostics : bool, default=False
        Whether to compute diagnostics in the same rounds as the fit: balance, overlap, heterogeneity and
        simpler estimates. The default is True for study files.
    target : {"population", "sample"}, default="population"
        Over whom effects are averaged: the population of which each site's people are a random sample, with
        the sites in the proportions of the study, or the people of the study themselves. The sample's
        interval is narrower if effects differ between people.
    by_site : bool, default=True
        Whether the result has effects by site. If not, sites send their average effects for the sum over all
        sites only, and there are no diagnostics, which compare sites.
    subgroups : dict of str to list of float or str, default={}
        Groups of people whose average effects are estimated as well, by complete covariates. The lower ends
        of ranges of a column, such as ``{"age": [0, 50, 65]}``: from 0 to below 50, from 50 to below 65, 65
        and over. The word "levels" for a group per level of a column, such as ``{"sex": "levels"}``. Or a
        name and a rule, such as ``{"older women": "age >= 65 and sex == 'f'"}``.
    privacy : Privacy or dict, default={}
        Whether the coordinator sees the statistics of single sites, or only their sums; and what to do about
        people who are at several sites.
    method : MethodSpec or dict, default={"name": "fedci"}
        The name of the method, and its settings. The estimators, such as `unpooled.FedCI`, set it themselves.
    sites : dict of str to Source, dict or str, default={}
        The tables by site name: a path, or a dict with the fields of `Source`. It may be empty if tables are
        passed to `fit`.

    Attributes
    ----------
    hash : str
        A digest of everything except `sites`: studies that ask the same question have the same hash.

    Raises
    ------
    StudyError
        If a key is unknown or missing, or a value is not allowed.

    Examples
    --------
    >>> study = Study(treatment="quit", outcome="weight", covariates=["age", "sex"], seed=7)
    >>> study.columns.covariates
    ('age', 'sex')
    >>> study.method.name
    'fedci'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "study"
    seed: int = Field(default=0, ge=0, lt=2**31)
    min_sites: int | None = Field(default=None, ge=1)
    diagnostics: bool = False
    target: Literal["population", "sample"] = "population"
    by_site: bool = True
    columns: ColumnRoles
    subgroups: dict[str, Entry] = Field(default_factory=dict)
    privacy: Privacy = Privacy()
    method: MethodSpec = MethodSpec()
    sites: dict[str, Source] = Field(default_factory=dict)

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error) from None

    @model_validator(mode="before")
    @classmethod
    def _lift_roles(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        flat = {key: value for key, value in values.items() if key in ColumnRoles.model_fields}
        if not flat:
            return values
        rest = {key: value for key, value in values.items() if key not in flat}
        given = rest.get("columns", {})
        columns = given.model_dump() if isinstance(given, ColumnRoles) else dict(given)
        return {**rest, "columns": {**columns, **flat}}

    @field_validator("sites", mode="before")
    @classmethod
    def _a_bare_string_is_a_path(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {
            name: {"path": source} if isinstance(source, str) else source for name, source in value.items()
        }

    @field_validator("sites")
    @classmethod
    def _every_site_has_a_name_of_its_own(cls, value: dict[str, Source]) -> dict[str, Source]:
        for name in value:
            if not name.strip():
                raise ValueError("a site without a name")
            if name.strip().casefold() == ALL_SITES:
                raise ValueError(f"a site called '{name}', which is the label of all sites together")
        return value

    @model_validator(mode="after")
    def _people_are_found_by_an_id(self) -> Study:
        if self.privacy.duplicates in ("leave out", "keyed hash") and not self.columns.identity:
            raise ValueError(f'duplicates = "{self.privacy.duplicates}" needs an `id` under [columns]')
        return self

    @model_validator(mode="after")
    def _subgroups_are_of_covariates(self) -> Study:
        check_subgroups(self.subgroups, self.columns)
        return self

    @property
    def duplicates(self) -> Literal["ignore", "leave out", "keyed hash"]:
        """What is done about people who are at several sites.

        >>> Study(treatment="w", outcome="y", covariates=["x"], id="nhs_number").duplicates
        'leave out'
        """
        if self.privacy.duplicates == "auto":
            return "leave out" if self.columns.identity else "ignore"
        return self.privacy.duplicates

    def with_changes(self, **changes: object) -> Study:
        """The study with some of its fields replaced, validated like a new one.

        >>> Study(treatment="quit", outcome="weight", covariates=["age"]).with_changes(seed=3).seed
        3
        """
        return Study(**{**self.model_dump(), **changes})

    @property
    def hash(self) -> str:
        """A digest of the study without the location of its tables."""
        question = self.model_dump(mode="json", exclude={"sites"})
        return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


_SECTIONS = {
    "columns": set(ColumnRoles.model_fields),
    "sites": set(Source.model_fields),
    "privacy": set(Privacy.model_fields),
    "": {*Study.model_fields, *ColumnRoles.model_fields},
}


def explain(error: ValidationError) -> StudyError:
    """Turn the problems that pydantic found into one error message, each with a remedy."""
    found = error.errors(include_url=False, include_input=False)
    unknown = [one for one in found if one["type"] == "extra_forbidden"]
    others = [one for one in found if one["type"] != "extra_forbidden" and not _misspelt(one, unknown)]
    problems = Problems()
    for one in (*unknown, *others):
        with problems.collected():
            raise _explained(one["type"], [str(part) for part in one["loc"]], one["msg"])
    try:
        problems.raise_all()
    except StudyError as together:
        return together
    raise error


def _misspelt(problem: ErrorDetails, unknown: Sequence[ErrorDetails]) -> bool:
    """Whether a key is missing because one that is not known is probably its misspelling."""
    given = [str(one["loc"][-1]) for one in unknown]
    return problem["type"] == "missing" and bool(
        get_close_matches(str(problem["loc"][-1]), given, n=1, cutoff=0.6)
    )


def _explained(kind: str, where: list[str], message: str) -> StudyError:
    place = ".".join(where) or "study"
    if kind == "extra_forbidden":
        known = _SECTIONS.get(where[0] if len(where) > 1 else "", set())
        return StudyError(
            "every key of a study must be known",
            found=f"unknown key '{where[-1]}' in {'.'.join(where[:-1]) or 'the study'}",
            remedy=nearest(where[-1], known),
        )
    if kind == "missing":
        return StudyError(
            f"the study must give '{where[-1]}'",
            found=f"no '{place}'",
            remedy="`unpooled new study.toml` writes a study file that explains every key",
        )
    found = message.removeprefix("Value error, ")
    return StudyError(f"'{place}' must be valid", found=found, remedy=f"correct '{place}' and run again")
