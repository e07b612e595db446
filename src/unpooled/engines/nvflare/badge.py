"""A badge: whose kit it is, in which consortium, and where the coordinator listens."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unpooled.engines.nvflare.consortium import HOST, NAME, ORGANISATION
from unpooled.errors import ResultsError

BADGE = "badge.json"
LEAD = "lead@unpooled.org"
"""The one person who may submit, follow, abort and end studies."""


class Badge(BaseModel):
    """The only words in a kit; a site's kit comes from somebody else, so they are checked again."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    consortium: str = Field(pattern=f"^(?:{NAME})$")
    name: str = Field(pattern=f"^(?:{NAME}|{HOST}|{LEAD})$")
    organisation: str = Field(pattern=f"^(?:{ORGANISATION})$")
    host: str = Field(pattern=f"^(?:{HOST})$", max_length=63)
    port: int = Field(ge=1, le=65535)


def parse_badge(text: bytes) -> Badge | None:
    try:
        return Badge.model_validate_json(text)
    except ValidationError:
        return None


def read_badge(kit: str | Path) -> Badge:
    """Whose kit lies in a folder."""
    try:
        badge = parse_badge((Path(kit) / BADGE).read_bytes())
    except OSError:
        badge = None
    if badge is None:
        raise ResultsError(
            "a party starts from the folder of its kit",
            found=f"no kit: {kit}",
            remedy=f"give the folder that holds '{BADGE}' and 'startup'",
        )
    return badge
