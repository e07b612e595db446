"""A consortium, read from `consortium.toml`: its coordinator, its sites, and the identity of each party."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from unpooled.errors import ResultsError, StudyError, nearest

DAYS = 360
"""The longest validity of a certificate that NVIDIA FLARE permits."""

NAME = r"[A-Za-z][A-Za-z0-9_-]{0,59}"
ORGANISATION = r"[A-Za-z][A-Za-z0-9_]{0,59}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_RESERVED = {"server", "all", "lead", "coordinator"}
_READ_AS_NUMBERS = {"inf", "infinity", "nan", "yes", "true", "t", "y", "no", "false", "f", "n"}
"""Words that NVIDIA FLARE's command line reads as numbers or switches."""

LEAD = "lead@unpooled.org"
"""The one user who may submit, follow, abort and end studies."""
IDENTITY = "identity.json"
"""The file of a kit that holds its party's identity."""


class Coordinator(BaseModel):
    """Where the coordinator listens: the host name by which sites reach it, and its one port."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "localhost"
    port: int = Field(default=8102, ge=1, le=65535)

    @field_validator("host")
    @classmethod
    def _a_host_name(cls, value: str) -> str:
        if len(value) > 63 or not re.fullmatch(HOST, value):
            raise ValueError("a host must be a name such as 'study.example.org' or an IPv4 address")
        return value


class Member(BaseModel):
    """One site that may take part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    organisation: str = ""

    @field_validator("organisation")
    @classmethod
    def _a_plain_name(cls, value: str) -> str:
        if value and (not re.fullmatch(ORGANISATION, value) or value.lower() in _READ_AS_NUMBERS):
            raise ValueError("an organisation is a letter, then letters, digits and '_'")
        return value


class Consortium(BaseModel):
    """The parties that run studies together, and how many days their certificates are valid.

    >>> consortium = Consortium(name="lungs", sites={"north-1": {}, "south": {"organisation": "clinic"}})
    >>> [member.organisation for member in consortium.sites.values()]
    ['north_1', 'clinic']
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    days: int = Field(default=DAYS, ge=1, le=DAYS)
    coordinator: Coordinator = Coordinator()
    sites: dict[str, Member] = Field(min_length=1)

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(error) from None

    @field_validator("name")
    @classmethod
    def _a_plain_name(cls, value: str) -> str:
        if not re.fullmatch(NAME, value):
            raise ValueError("a consortium's name is a letter, then letters, digits, '-' and '_', at most 60")
        return value

    @field_validator("sites")
    @classmethod
    def _plain_names(cls, value: dict[str, Member]) -> dict[str, Member]:
        seen: set[str] = set()
        for name in value:
            if not re.fullmatch(NAME, name) or name.lower() in _READ_AS_NUMBERS:
                raise ValueError(
                    "a site's name is a letter, then letters, digits, '-' and '_', at most 60; "
                    "not a word for a number, yes or no"
                )
            if name.lower() in _RESERVED:
                raise ValueError(f"a site cannot be called '{name}', which is a reserved name")
            if name.lower() in seen:
                raise ValueError(f"two sites are called '{name}', apart from capital letters")
            seen.add(name.lower())
        return {
            name: member if member.organisation else Member(organisation=name.replace("-", "_"))
            for name, member in value.items()
        }

    @model_validator(mode="after")
    def _no_site_is_the_coordinator(self) -> Consortium:
        if self.coordinator.host.lower() in {name.lower() for name in self.sites}:
            raise ValueError(f"a site and the coordinator's host are both called '{self.coordinator.host}'")
        return self


class Identity(BaseModel):
    """Whose kit it is, in which consortium, and where the coordinator listens.

    It is the only text in a kit. A site receives its kit from somebody else, so all fields are checked again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    consortium: str = Field(pattern=f"^(?:{NAME})$")
    name: str = Field(pattern=f"^(?:{NAME}|{HOST}|{LEAD})$")
    organisation: str = Field(pattern=f"^(?:{ORGANISATION})$")
    host: str = Field(pattern=f"^(?:{HOST})$", max_length=63)
    port: int = Field(ge=1, le=65535)


def parse_identity(text: bytes) -> Identity | None:
    try:
        return Identity.model_validate_json(text)
    except ValidationError:
        return None


def read_identity(kit: str | Path) -> Identity:
    """The identity of the party whose kit is in a folder."""
    try:
        identity = parse_identity((Path(kit) / IDENTITY).read_bytes())
    except OSError:
        identity = None
    if identity is None:
        raise ResultsError(
            "a party starts from the folder of its kit",
            found=f"no kit: {kit}",
            remedy=f"give the folder that holds '{IDENTITY}' and 'startup'",
        )
    return identity


_SECTIONS = {
    "coordinator": set(Coordinator.model_fields),
    "sites": set(Member.model_fields),
    "": set(Consortium.model_fields),
}


def read_consortium(path: str | Path) -> Consortium:
    """The consortium that a file describes."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+", str(error))
        raise StudyError(
            "the consortium file must be valid TOML",
            found=f"a mistake at {place[0] if place else 'the end of the file'} of {path}",
            remedy="look there for a missing quote, bracket or equals sign, or a key given twice",
        ) from None
    except FileNotFoundError:
        found, remedy = "no such file", "correct the path"
    except UnicodeDecodeError:
        found, remedy = "a file that is not text in UTF-8", "save it as UTF-8"
    except OSError:
        found, remedy = "a path that cannot be read", "give a file that this user may read"
    else:
        return Consortium(**content)
    raise StudyError("the consortium file must be readable", found=f"{found}: {path}", remedy=remedy)


def _explain(error: ValidationError) -> StudyError:
    """The first problem as an error that a user can act on, unknown keys before all others."""
    problems = error.errors(include_url=False, include_input=False)
    problem = min(problems, key=lambda one: one["type"] != "extra_forbidden")
    where = [str(part) for part in problem["loc"]]
    place = ".".join(where) or "the consortium"
    if problem["type"] == "extra_forbidden":
        return StudyError(
            "every key of a consortium must be known",
            found=f"unknown key '{where[-1]}' in {'.'.join(where[:-1]) or 'the consortium'}",
            remedy=nearest(where[-1], _SECTIONS[where[0] if len(where) > 1 else ""]),
        )
    if problem["type"] == "missing" or (place == "sites" and problem["type"] == "too_short"):
        example = "one section [sites.NAME] per site" if place == "sites" else f"{place} = …"
        return StudyError(
            f"a consortium must give '{place}'", found=f"no '{place}'", remedy=f"write {example}"
        )
    message = problem["msg"].removeprefix("Value error, ")
    return StudyError(f"'{place}' must be valid", found=message, remedy=f"correct '{place}' and run again")
