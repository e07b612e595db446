"""The first rounds of a study with an `id`: people who are at several sites are found, and left out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from unpooled.errors import SiteLost
from unpooled.optimise.procedure import Procedure, ask_each
from unpooled.protocol.duplicate_messages import (
    BlindKeys,
    CountKeys,
    FinishKeys,
    HashKeys,
    KeysCounted,
    LeaveOut,
    RaiseKeys,
)
from unpooled.study import Study

KEYED = (
    "people at several sites were found by keyed hashes: whoever has the sites' key and the hashes can test "
    "every possible person"
)


@dataclass(frozen=True)
class CopiesAtSite:
    """What was found at one site."""

    rows: int
    remaining: int
    elsewhere: int
    """People who are at another site too."""
    counted: KeysCounted

    @property
    def left_out(self) -> int:
        return self.rows - self.remaining


@dataclass(frozen=True)
class Copies:
    """People who are at several sites."""

    sites: dict[str, CopiesAtSite]
    overlaps: dict[tuple[str, ...], int]
    """Number of people by the sites at which they are, two or more."""

    @property
    def share(self) -> float:
        """Rows left out, as a share of all rows."""
        return sum(one.left_out for one in self.sites.values()) / sum(one.rows for one in self.sites.values())


def leave_out_copies(study: Study) -> Procedure[Copies | None]:
    """Find people who are at several sites, and have all but `max_copies` of their copies left out."""
    if study.duplicates == "ignore":
        return None
    counted = yield from ask_each(CountKeys(study.columns))
    sizes = {site: reply.size for site, reply in counted.items()}
    tags: dict[str, np.ndarray] = {}
    if len(sizes) > 1:
        tags = yield from (_hashed if study.duplicates == "keyed hash" else _raised)(sizes)
    found = matched(tags)
    places = {site: np.array([], np.int32) for site in sizes}
    places |= superfluous(found, tags, study.privacy.max_copies)
    remaining = yield from ask_each(LeaveOut(sizes, places))
    elsewhere = Counter(site for group in found for site in group)
    return Copies(
        {
            site: CopiesAtSite(one.rows, remaining[site].rows, elsewhere[site], one)
            for site, one in counted.items()
        },
        dict(sorted(Counter(tuple(group) for group in found).items())),
    )


def _hashed(sizes: dict[str, int]) -> Procedure[dict[str, np.ndarray]]:
    replies = yield from ask_each(HashKeys(sizes))
    return {site: _of_length(reply.tags, sizes[site], 16, site) for site, reply in replies.items()}


def _raised(sizes: dict[str, int]) -> Procedure[dict[str, np.ndarray]]:
    """All lists visit all other sites in parallel, one site in each round, and come home."""
    sites = list(sizes)
    replies = yield from ask_each(BlindKeys(sizes))
    lists = {site: _of_length(reply.points, sizes[site], 32, site) for site, reply in replies.items()}
    for hop in range(1, len(sites)):
        replies = yield from ask_each(RaiseKeys(sizes, hop, lists))
        owners = {sites[(place - hop) % len(sites)]: site for place, site in enumerate(sites)}
        lists = {
            owner: _of_length(replies[owners[owner]].points, sizes[owner], 32, owners[owner])
            for owner in sites
        }
    replies = yield from ask_each(FinishKeys(sizes, lists))
    return {site: _of_length(reply.tags, sizes[site], 16, site) for site, reply in replies.items()}


def _of_length(found: np.ndarray, rows: int, width: int, site: str) -> np.ndarray:
    if np.shape(found) != (rows, width) or np.asarray(found).dtype != np.uint8:
        raise SiteLost(site, "its list has another length than announced")
    return found


Places = dict[str, int]
"""Of one person: the place in the list of each site."""


def matched(tags: Mapping[str, np.ndarray]) -> list[Places]:
    """The people whose tag is in the lists of two or more sites, in the order of the tags."""
    if not tags:
        return []
    high, low = np.concatenate([np.ascontiguousarray(one).view("<u8") for one in tags.values()]).T
    site = np.repeat(np.arange(len(tags)), [len(one) for one in tags.values()])
    place = np.concatenate([np.arange(len(one)) for one in tags.values()])
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    same = np.append((high[1:] == high[:-1]) & (low[1:] == low[:-1]), False)
    names, found = list(tags), []
    for start, stop in _runs(same):
        group = {names[site[one]]: int(place[one]) for one in order[start:stop]}
        if len(group) > 1:
            found.append(group)
    return found


def _runs(same: np.ndarray) -> Iterator[tuple[int, int]]:
    """From and to: runs of equal neighbours.

    >>> list(_runs(np.array([False, True, True, False, True, False])))
    [(1, 4), (4, 6)]
    """
    starts = np.flatnonzero(same & ~np.concatenate([[False], same[:-1]]))
    stops = np.flatnonzero(~same & np.concatenate([[False], same[:-1]]))
    yield from ((int(start), int(stop) + 1) for start, stop in zip(starts, stops, strict=True))


def superfluous(found: list[Places], tags: Mapping[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """By site: the places of people who stay at `most` other sites. A hash of tag and site decides."""
    out: dict[str, list[int]] = {site: [] for site in tags}
    for group in found:
        tag = tags[next(iter(group))][next(iter(group.values()))].tobytes()
        drawn = sorted(group, key=lambda site: hashlib.sha256(tag + site.encode()).digest())
        for site in drawn[most:]:
            out[site].append(group[site])
    return {site: np.array(sorted(places), np.int32) for site, places in out.items()}


def words(copies: Copies, study: Study) -> Iterator[str]:
    """What a result says of people who are at several sites."""
    out = sum(one.left_out for one in copies.sites.values())
    yield f"{out:,} rows ({copies.share:.1%}) of people who are at several sites, or repeated, are left out"
    if study.duplicates == "keyed hash":
        yield KEYED
