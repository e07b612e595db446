"""A site's own folder: `site.toml` (the location of its table, its limits), identity, approvals, ledger."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from unpooled.disclosure.limits import Limits
from unpooled.disclosure.private_files import make_own_folder
from unpooled.errors import ResultsError, StudyError, nearest
from unpooled.site import identity, ledger_files
from unpooled.site.ledger_files import APPROVALS
from unpooled.site.private_files import keeping, write_whole
from unpooled.study import ALL_SITES, Source
from unpooled.study.file import resolved

FILE, LEDGER, ERRORS = "site.toml", "ledger.jsonl", "errors.log"
REFUSALS, ALLOWANCES = "refusals.log", "allowances"
REPLY_BYTES, STUDY_BYTES = 64 * 2**20, 1024 * 2**20


class OwnLimits(BaseModel):
    """The site's limits, as written in `site.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = Field(default=Limits.rows, ge=0)
    cell: int = Field(default=Limits.cell, ge=0)
    share: float = Field(default=Limits.share, gt=0.0)
    reply_bytes: int = Field(default=REPLY_BYTES, ge=1)
    study_bytes: int = Field(default=STUDY_BYTES, ge=1)


class SiteFile(BaseModel):
    """The content of `site.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    data: Source
    rehearsal: bool = False
    limits: OwnLimits = OwnLimits()

    @field_validator("name")
    @classmethod
    def _a_name_of_its_own(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("a site without a name")
        if value.strip().casefold() == ALL_SITES:
            raise ValueError(f"a site named '{value}', which is reserved for results over all sites")
        return value


_SECTIONS = {"data": Source.model_fields, "limits": OwnLimits.model_fields, "": SiteFile.model_fields}


@dataclass(frozen=True)
class SiteFolder:
    """The settings in `site.toml` and the paths of the folder, which only the custodian can read."""

    folder: Path
    name: str
    source: Source
    limits: Limits = Limits()
    reply_bytes: int = REPLY_BYTES
    """The largest reply, in bytes, that may leave the site."""
    study_bytes: int = STUDY_BYTES
    """The largest number of bytes that may leave the site in one study."""
    rehearsal: bool = False
    """Whether one person holds every table: random numbers then follow the study's seed, not a secret."""

    @classmethod
    def create(
        cls,
        folder: Path | str,
        name: str,
        source: Source,
        *,
        limits: Limits = Limits(),
        reply_bytes: int = REPLY_BYTES,
        rehearsal: bool = False,
    ) -> SiteFolder:
        """Create a site's folder with a new identity and an empty ledger.

        A relative path of the table is relative to the current folder.
        """
        folder = Path(folder).absolute()
        data = _movable(resolved(source, Path.cwd(), name), folder)
        bounds = {**vars(limits), "reply_bytes": reply_bytes}
        content = _checked(
            {"name": name, "data": data.model_dump(), "rehearsal": rehearsal, "limits": bounds}
        )
        if (folder / FILE).exists():
            raise ResultsError(
                "a site's folder must be new",
                found=f"{FILE} is already in {folder}",
                remedy="edit that file, or choose another folder; nothing was changed",
            )
        with keeping(folder):
            make_own_folder(folder)
        if not ledger_files.exists(folder / LEDGER):
            ledger_files.create(folder / LEDGER)
        identity.create_identity(folder / identity.FILE)
        write_whole(folder / FILE, _written(content))
        return cls.read(folder)

    @classmethod
    def read(cls, folder: Path | str) -> SiteFolder:
        """Read `site.toml`; its paths are relative to the folder."""
        folder = Path(folder).absolute()
        content = _checked(_parsed(folder / FILE))
        bounds = content.limits
        limits = Limits(bounds.rows, bounds.cell, bounds.share)
        source = resolved(content.data, folder, content.name)
        sizes = bounds.reply_bytes, bounds.study_bytes
        return cls(folder, content.name, source, limits, *sizes, content.rehearsal)

    @property
    def ledger(self) -> Path:
        return self.folder / LEDGER

    @property
    def identity(self) -> Path:
        return self.folder / identity.FILE

    @property
    def approvals(self) -> Path:
        return self.folder / APPROVALS

    @property
    def errors(self) -> Path:
        return self.folder / ERRORS

    @property
    def refusals(self) -> Path:
        return self.folder / REFUSALS

    @property
    def allowances(self) -> Path:
        return self.folder / ALLOWANCES


def _movable(source: Source, folder: Path) -> Source:
    """Make the path of a table inside the folder relative, so that the folder can be moved."""
    if source.path is None or not Path(source.path).is_relative_to(folder):
        return source
    return source.model_copy(update={"path": Path(source.path).relative_to(folder).as_posix()})


_WORDS = {
    "rows": "minimum number of rows behind any statistic",
    "cell": "minimum number of people in an arm, with a value of a column, or behind a sum",
    "share": "maximum number of features, as a share of the smallest group whose sums can be worked out",
    "reply_bytes": "largest reply that may leave the site, in bytes",
    "study_bytes": "most bytes that may leave the site in one study",
}


def _written(content: SiteFile) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment("A site of unpooled. For its custodian only: a url may contain a password."))
    document.add("name", tomlkit.item(content.name))
    if content.rehearsal:
        document.add("rehearsal", tomlkit.item(True).comment("one person holds the tables of all sites"))
    document.add("data", tomlkit.item(content.data.model_dump(exclude_none=True)))
    limits = tomlkit.table()
    for key, value in content.limits.model_dump().items():
        limits.add(key, tomlkit.item(value).comment(_WORDS[key]))
    document.add("limits", limits)
    return tomlkit.dumps(document)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+", str(error))
        raise StudyError(
            f"{FILE} must be valid TOML",
            found=f"a syntax error at {place[0] if place else 'the end of the file'} of {path}",
            remedy="check for a missing quote, bracket or equals sign, or a duplicate key",
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        found, remedy = f"no {FILE} in {path.parent}", "give the site's folder with --folder"
    except UnicodeDecodeError:
        found, remedy = f"{path} is not UTF-8 text", "save it as UTF-8"
    except OSError as error:
        found, remedy = f"{path} cannot be read ({error.strerror})", "obtain read permission"
    raise ResultsError("a site needs a folder with a readable site.toml", found=found, remedy=remedy)


def _checked(content: dict[str, Any]) -> SiteFile:
    """Validate the content; an error never includes the value, which may contain a password."""
    try:
        return SiteFile.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    problem = min(problems, key=lambda one: one["type"] != "extra_forbidden")
    where = [str(part) for part in problem["loc"]]
    place = ".".join(where)
    if problem["type"] == "extra_forbidden":
        raise StudyError(
            f"every key of {FILE} must be known",
            found=f"unknown key '{place}'",
            remedy=nearest(where[-1], _SECTIONS[where[0] if len(where) > 1 else ""]),
        )
    if problem["type"] == "missing":
        raise StudyError(f"{FILE} must have '{place}'", found=f"no '{place}'", remedy=f"add '{place}'")
    message = problem["msg"].removeprefix("Value error, ")
    raise StudyError(f"'{place}' of {FILE} must be valid", found=message, remedy=f"correct '{place}'")
