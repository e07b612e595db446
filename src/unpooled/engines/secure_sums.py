"""The coordinator's part in sums of which it does not see the terms: it passes on keys and chooses scales.

Sites keep a session for each run (`unpooled.site.session`). An engine calls `meet` before the first question,
and again whenever a site has restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unpooled.coordinator.aggregate import aggregate
from unpooled.errors import DataError, LimitRefusal
from unpooled.protocol.fixed_point import Scale, scale_for
from unpooled.protocol.messages import Adopt, Introduce, Meet, Question, Reply, SiteReplies, TooLarge

PER_PERSON = 2.0**10
"""Largest mean over people of a statistic in standard units, for numbers in one word."""
WIDER = 2.0**40
"""How much larger numbers may be if they are written in two words."""
LARGEST_RAW = 1e30
"""Largest sum of squares of columns in their own units, for which nothing is known before the sites agree."""

Exchange = Callable[[Question], Mapping[str, Reply]]


def meet(exchange: Exchange, sites: tuple[str, ...]) -> None:
    """Let the sites exchange keys, and refuse two sites with the same table."""
    introductions = _each(exchange(Introduce(sites)))
    tags = {site: one.tags for site, one in _each(exchange(Meet(introductions))).items()}
    for place, site in enumerate(sites):
        for other in sites[place + 1 :]:
            if tags[site].get(other, b"") == tags[other].get(site):
                raise DataError(
                    "every site must hold its own people",
                    found=f"sites '{site}' and '{other}' have the same table",
                    remedy="check that the same table was not given twice",
                )


def _each(replies: Mapping[str, Reply]) -> dict[str, Any]:
    combined = aggregate(replies)
    assert isinstance(combined, SiteReplies)
    return combined.replies


class Scales:
    """The scales on which numbers are masked: coarse enough for sums over all people, and as fine as that."""

    def __init__(self, sites: int) -> None:
        self.sites = sites
        self._people: int | None = None

    def first(self, question: Question) -> Scale:
        """The scale for a question."""
        if isinstance(question, Adopt):
            self._people = question.scaling.people
        if self._people is None:
            return scale_for(LARGEST_RAW, self.sites, words=4)
        return scale_for(PER_PERSON * self._people, self.sites)

    def wider(self, scale: Scale) -> Scale:
        """The scale with which a question is asked again, because a number was too large."""
        if scale.words > 1:
            raise LimitRefusal(
                "sums must be small enough to be masked",
                found="a site whose sums are too large, even in several words",
                remedy="rescale columns with very large values, or use settings that converge",
            )
        return scale_for(scale.largest * WIDER, self.sites, words=2)


def too_large(replies: Mapping[str, Reply]) -> bool:
    """Whether a site needs a wider scale."""
    return any(isinstance(reply, TooLarge) for reply in replies.values())
