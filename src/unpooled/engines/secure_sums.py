"""The coordinator's part in sums of which it does not see the terms: it passes on keys and chooses scales.

Sites keep a session for each run (`unpooled.site.session`). An engine calls `meet` before the first question,
and again whenever a site has restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unpooled.coordinator.aggregate import aggregate
from unpooled.errors import DataError, LimitRefusal
from unpooled.protocol.fixed_point import Scale, offered
from unpooled.protocol.key_messages import Introduce, Meet, TooLarge
from unpooled.protocol.messages import Adopt, Question, Reply, SiteReplies

Exchange = Callable[[Question], Mapping[str, Reply]]


def meet(exchange: Exchange, sites: tuple[str, ...]) -> dict[str, bytes]:
    """Let the sites exchange keys, and refuse two sites with the same table; the marks of the tables."""
    introductions = _each(exchange(Introduce(sites)))
    met = _each(exchange(Meet(introductions)))
    tags = {site: one.tags for site, one in met.items()}
    for place, site in enumerate(sites):
        for other in sites[place + 1 :]:
            if tags[site].get(other, b"") == tags[other].get(site):
                raise DataError(
                    "every site must hold its own people",
                    found=f"sites '{site}' and '{other}' have the same table",
                    remedy="check that the same table was not given twice",
                )
    return {site: one.mark for site, one in met.items()}


def _each(replies: Mapping[str, Reply]) -> dict[str, Any]:
    combined = aggregate(replies)
    assert isinstance(combined, SiteReplies)
    return combined.replies


class Scales:
    """The scales on which numbers are masked: coarse enough for sums over all people, and as fine as that."""

    def __init__(self, sites: int) -> None:
        self.sites = sites
        self._people: int | None = None

    def of(self, question: Question, *, wider: bool = False) -> Scale:
        """The scale for a question; a wider one if it is asked again because a number was too large."""
        if isinstance(question, Adopt):
            self._people = question.scaling.people
        scales = offered(self.sites, self._people if question.of_stages else None)
        if wider and len(scales) == 1:
            raise LimitRefusal(
                "sums must be small enough to be masked",
                found="a site whose columns have values of 1e15 and more",
                remedy="rescale columns with very large values",
            )
        return scales[wider]


def too_large(replies: Mapping[str, Reply]) -> bool:
    """Whether a site needs a wider scale."""
    return any(isinstance(reply, TooLarge) for reply in replies.values())
