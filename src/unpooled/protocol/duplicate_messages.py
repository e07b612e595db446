"""Messages by which sites find people who are at several of them, and leave copies out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unpooled.protocol.messages import Question, Reply
from unpooled.study import ColumnRoles, Study


@dataclass(frozen=True)
class KeysCounted(Reply):
    """Reveals: rows; rows without a key or with a wrong one, rows of people seen before, if they are many."""

    reveals: ClassVar[str] = (
        "number of rows; number of people, rounded up; how many rows have no key, a wrong check digit, or a "
        "person of an earlier row, unless that is a small number"
    )
    rows: int
    size: int
    """Length of the site's list: its people with a key, rounded up."""
    without_key: int | None
    """None for a number below the site's limit."""
    wrong_check: int | None
    repeated: int | None


@dataclass(frozen=True)
class Blinded(Reply):
    """Reveals: nothing; points that cannot be told from random ones."""

    reveals: ClassVar[str] = "points of a group that cannot be told from random ones, in random order"
    points: np.ndarray
    """[size, 32], people and random points."""


@dataclass(frozen=True)
class Raised(Reply):
    """Reveals: nothing; another site's list, raised to a secret power of this site."""

    reveals: ClassVar[str] = "another site's points, raised to a secret power"
    points: np.ndarray


@dataclass(frozen=True)
class Tagged(Reply):
    """Reveals: how many people two or more sites have in common."""

    reveals: ClassVar[str] = (
        "tags of people in random order, which are equal at two sites if the person is: how many people the "
        "sites have in common; with keyed hashes, whoever has the key can test every possible person"
    )
    tags: np.ndarray
    """[size, 16], people and random tags."""


@dataclass(frozen=True)
class LeftOut(Reply):
    """Reveals: number of rows that remain."""

    reveals: ClassVar[str] = "how many rows remain after those of people counted elsewhere are left out"
    rows: int


OTHER_WAY = "another way of finding people at several sites than the study's"


class AboutPeople(Question):
    """Base class of questions by which people at several sites are found and left out, before all others."""

    ways: ClassVar[tuple[str, ...]]
    """The values of `Study.duplicates` that it is for."""

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates in cls.ways

    def mismatch(self, study: Study) -> str | None:
        return None if self.concerns(study) else OTHER_WAY


@dataclass(frozen=True)
class CountKeys(AboutPeople):
    """How many people have a key?"""

    reply: ClassVar[type[Reply]] = KeysCounted
    ways: ClassVar[tuple[str, ...]] = ("leave out", "keyed hash")
    columns: ColumnRoles

    def mismatch(self, study: Study) -> str | None:
        other = None if self.columns == study.columns else "a question about other columns"
        return super().mismatch(study) or other


@dataclass(frozen=True)
class BlindKeys(AboutPeople):
    """The site's people as blinded points, for a study with these sites and lengths of lists."""

    reply: ClassVar[type[Reply]] = Blinded
    ways: ClassVar[tuple[str, ...]] = ("leave out",)
    sizes: dict[str, int]


@dataclass(frozen=True)
class RaiseKeys(AboutPeople):
    """Raise another site's list to the site's power; with every hop, each list moves on by one site."""

    reply: ClassVar[type[Reply]] = Raised
    ways: ClassVar[tuple[str, ...]] = ("leave out",)
    sizes: dict[str, int]
    hop: int
    lists: dict[str, np.ndarray]
    """By the site whose people they are; a site receives one of them."""

    def to_site(self, site: int) -> Question:
        owner = list(self.lists)[(site - self.hop) % len(self.lists)]
        return replace(self, lists={owner: self.lists[owner]})


@dataclass(frozen=True)
class FinishKeys(AboutPeople):
    """The site's list, raised to the powers of all other sites. What are the tags of its people?"""

    reply: ClassVar[type[Reply]] = Tagged
    ways: ClassVar[tuple[str, ...]] = ("leave out",)
    sizes: dict[str, int]
    lists: dict[str, np.ndarray]
    """By site; a site receives its own."""

    def to_site(self, site: int) -> Question:
        owner = list(self.lists)[site]
        return replace(self, lists={owner: self.lists[owner]})


@dataclass(frozen=True)
class HashKeys(AboutPeople):
    """The tags of the site's people, by a key that the sites share."""

    reply: ClassVar[type[Reply]] = Tagged
    ways: ClassVar[tuple[str, ...]] = ("keyed hash",)
    sizes: dict[str, int]


@dataclass(frozen=True)
class LeaveOut(AboutPeople):
    """Leave out the people at these places of the site's list of tags."""

    reply: ClassVar[type[Reply]] = LeftOut
    ways: ClassVar[tuple[str, ...]] = ("leave out", "keyed hash")
    repeated_on_resume: ClassVar[bool] = True
    sizes: dict[str, int]
    places: dict[str, np.ndarray]
    """By site; a site receives its own."""

    def to_site(self, site: int) -> Question:
        owner = list(self.sizes)[site]
        return replace(self, places={owner: self.places[owner]})
