"""A study: the question, the method that answers it, the seed, and where the sites' tables are."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from unpooled.errors import StudyError, nearest
from unpooled.study.columns import Columns

ALL_SITES = "all sites"
"""The row of every table that is about all of them together."""


class Source(BaseModel):
    """Where one site's table is: a file, or a database URL with a query."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = None
    url: str | None = Field(default=None, repr=False)  # it may hold a password
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


class MethodChoice(BaseModel):
    """The method's name; every other key is one of its settings, checked by the method itself."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "fedci"

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Study(BaseModel):
    """What is asked of which columns, by which method, of which sites.

    Roles may be given flat, as a person types them, or under ``columns``, as a study file does.

    >>> study = Study(treatment="quit", outcome="weight", covariates=["age", "sex"])
    >>> study.columns.covariates
    ('age', 'sex')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "study"
    seed: int = Field(default=0, ge=0, lt=2**31)
    min_sites: int | None = Field(default=None, ge=1)
    """How many sites the study may rest on at least, should others be lost on the way; None: on all."""
    diagnostics: bool = False
    """Whether balance, overlap and simpler estimates are asked for in the same rounds, for the report."""
    columns: Columns
    method: MethodChoice = MethodChoice()
    sites: dict[str, Source] = Field(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error) from None

    @model_validator(mode="before")
    @classmethod
    def _lift_roles(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        flat = {key: value for key, value in values.items() if key in Columns.model_fields}
        if not flat:
            return values
        rest = {key: value for key, value in values.items() if key not in flat}
        given = rest.get("columns", {})
        columns = given.model_dump() if isinstance(given, Columns) else dict(given)
        return {**rest, "columns": {**columns, **flat}}

    @field_validator("sites", mode="before")
    @classmethod
    def _a_bare_string_is_a_path(cls, value: Any) -> Any:
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
                raise ValueError(f"a site called '{name}', which is the name of all of them together")
        return value

    @property
    def hash(self) -> str:
        """A digest of the question: same question, same hash; where the tables lie does not matter."""
        question = self.model_dump(mode="json", exclude={"sites"})
        return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


_SECTIONS = {
    "columns": set(Columns.model_fields),
    "sites": set(Source.model_fields),
    "": {*Study.model_fields, *Columns.model_fields},
}


def explain(error: ValidationError) -> StudyError:
    """One pydantic problem as a sentence a user can act on (the first problem; fixing it shows the next)."""
    problems = error.errors(include_url=False, include_input=False)
    # a misspelt key is also a missing one: the unknown word comes first, with the word that was meant
    problem = min(problems, key=lambda one: one["type"] != "extra_forbidden")
    where = [str(part) for part in problem["loc"]]
    place = ".".join(where) or "study"
    if problem["type"] == "extra_forbidden":
        known = _SECTIONS.get(where[0] if len(where) > 1 else "", set())
        return StudyError(
            "every key of a study must be known",
            found=f"unknown key '{where[-1]}' in {'.'.join(where[:-1]) or 'the study'}",
            remedy=nearest(where[-1], known),
        )
    if problem["type"] == "missing":
        return StudyError(
            f"the study must give '{where[-1]}'",
            found=f"no '{place}'",
            remedy="`unpooled new study.toml` writes a study file with every key explained",
        )
    message = problem["msg"].removeprefix("Value error, ")
    return StudyError(f"'{place}' must be valid", found=message, remedy=f"correct '{place}' and run again")
