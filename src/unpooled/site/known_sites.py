"""The list of a consortium's sites with their public identities, and which of them a study may have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from unpooled.errors import ApprovalError, ResultsError
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import public_identity
from unpooled.study import Study

FILE = "sites.json"
Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A public identity."""


class SitesFile(BaseModel):
    """The content of `sites.json`, which the coordinator sends to every custodian."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    consortium: str
    sites: dict[str, Hex]

    @field_validator("sites")
    @classmethod
    def _each_its_own(cls, value: dict[str, str]) -> dict[str, str]:
        if len(set(value.values())) < len(value):
            raise ValueError("one identity for two sites")
        return value


def read_sites(path: Path) -> dict[str, bytes]:
    """The public identity of each site in a list."""
    try:
        content = SitesFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise ResultsError(
            "the list of sites must be readable",
            found=f"no such list, or a damaged one: {path}",
            remedy=f"ask the coordinator for {FILE} as `unpooled coordinator admit` wrote it",
        ) from None
    return {name: bytes.fromhex(identity) for name, identity in content.sites.items()}


def list_beside(study: Path, given: Path | None) -> dict[str, bytes] | None:
    """The list that was given, or else one beside the study file; None if there is none."""
    path = given or study.with_name(FILE)
    return read_sites(path) if given or path.exists() else None


def known_to(own: SiteFolder, study: Study, sites: Mapping[str, bytes] | None) -> dict[str, bytes] | None:
    """The identities of the other sites in an approved list; None if the study needs none.

    A study without masks needs none, and neither does a rehearsal, in which one person holds all tables.
    """
    if sites is None:
        if own.rehearsal or study.privacy.aggregation == "plain":
            return None
        raise ApprovalError(
            "a study whose sums are masked is approved together with the list of its sites",
            found="no list of sites",
            remedy=f"ask the coordinator for {FILE}, compare its words by telephone, and review the study "
            f"again with --sites {FILE}",
        )
    if sites.get(own.name) != public_identity(own.identity):
        found = f"another identity of '{own.name}'" if own.name in sites else f"no '{own.name}'"
        raise ApprovalError(
            "the list of sites must hold this site with its own identity",
            found=found,
            remedy="ask the coordinator for the present list; if it is that one, this may be an attack: tell "
            "all custodians",
        )
    return {name: identity for name, identity in sites.items() if name != own.name}
