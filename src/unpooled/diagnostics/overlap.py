"""Overlap in brief: are both arms represented at every site? From what the agreement already revealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unpooled.study import Description, Schema

FEW = 10
"""Below so many people in an arm, a site says little about that arm by itself."""
RARE = 0.1
"""Below this share, comparisons at the site lean on the other sites or on extrapolation."""


@dataclass(frozen=True)
class Overlap:
    """The arms of one site and a hint in words; no hint where nothing is to be said."""

    control: int
    treated: int
    hint: str = ""

    @property
    def rows(self) -> int:
        return self.control + self.treated

    @property
    def treated_share(self) -> float:
        return self.treated / self.rows


def overlap(control: int, treated: int) -> Overlap:
    """The hint for one site's two arms.

    >>> overlap(95, 37).hint
    ''
    >>> overlap(95, 4).hint
    'only 4 people in the treated arm'
    """
    smaller, arm = min((control, "control"), (treated, "treated"))
    if smaller < FEW:
        return Overlap(control, treated, f"only {smaller} people in the {arm} arm")
    if smaller < RARE * (control + treated):
        return Overlap(control, treated, f"the {arm} arm is rare: {smaller / (control + treated):.0%}")
    return Overlap(control, treated)


def overlaps(descriptions: Mapping[str, Description], schema: Schema) -> dict[str, Overlap]:
    """Every site's arms, in the sites' order."""
    return {
        site: overlap(described.arms.get(schema.control, 0), described.arms.get(schema.treated, 0))
        for site, described in descriptions.items()
    }
